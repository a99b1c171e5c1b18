"""Computes tokens. Receives sequences from a role, gives back tokens step by step.

``api`` is all that the rest of the program sees. ``core`` joins ``scheduler`` and ``kv`` (no
tensors) over a Runner: ``native`` (torch) or ``fake`` (hashes instead of a model).
"""
