"""Moves KV bytes between workers. Receives copies (integers) from a role, gives back events.

``base`` is the seam, ``plan`` says which bytes go where (pure), ``registry`` names the connectors.
"""
