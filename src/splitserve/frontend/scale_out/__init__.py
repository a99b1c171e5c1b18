"""Render and derender as services of their own: text work on machines without accelerators.

Receives OpenAI requests and gives token ids (render); receives the token ids of answers and gives
OpenAI answers (derender). Paths and fields are vLLM's, so a router made for vLLM can use it.

    app.py                the application of a render process
    routes.py             path -> endpoint
    tier.py               what the endpoints share
    endpoint.py           one call: body in, body out, in a thread when it is long
    render_service.py     a Job as the body of a generate request
    requests.py           bodies of the derender calls, decoded
    asked.py              what the original request means for its answer's text
    choice_reader.py      one choice of a generate answer to Deltas
    derender_batch.py     a whole answer at once
    derender_stream.py    one call a chunk; all there is to remember travels in stream_state
    stream_state.py       which is signed here
    derender_session.py   one long request: chunks in as lines (lines.py), events out
    generate.py, abort.py a gateway's own token endpoint, for those who do text elsewhere
    chunk_bodies.py       a Delta as one chunk object

Batch, stream and session read with the same ChoiceReader, so they give the same answer.
"""
