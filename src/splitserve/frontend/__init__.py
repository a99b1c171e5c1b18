"""Text in, ids out; ids in, text out; and the HTTP surface around both.

    render/     an OpenAI body            -> a Job: prompts as token ids, sampling, what to answer
    derender/   TokenChunks of the answer -> text, events, an OpenAI answer (pure, no IO)
    app.py      the ASGI application over a Generator; everything with a socket is here

A request passes body.py, render/, generation.py, derender/ and sse.py, in this order.
"""
