"""Which tokens a constrained answer may have next.

Receives StructuredOutputs and output tokens from the engine's core, gives back masks. Knows no
tensors: a mask is one bit a token id, the lowest bit of the first byte being id 0.
"""
