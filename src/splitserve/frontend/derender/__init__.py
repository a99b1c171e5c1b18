"""Token ids become text, events and an OpenAI answer. Pure: values in, values out.

    TokenChunk -> detokenize.py -> stops.py -> pipeline.py (Delta of Events)
               -> chat.py or completions.py: server-sent events, or
               -> answer.py: the folded stream, from which a whole answer is built

Streaming is the only path: an answer that is not streamed is its stream, folded.
"""
