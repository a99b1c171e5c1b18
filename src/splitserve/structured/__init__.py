"""What an answer must conform to, as a grammar that llguidance reads.

Receives StructuredOutputs from frontend and engine, gives both the same grammar text or a
CallerError. The frontend checks with it, the engine constrains with it (``engine.grammar``).

The library bounds the steps of its own lexer and parser and nothing before that, so the limits
here bound what reaches it: bytes, depth, and an estimate of the work.
"""
