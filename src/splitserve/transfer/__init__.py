"""Moves KV bytes between workers. Receives block numbers from a role, gives back events.

``base`` is the seam, ``plan`` says which bytes go where (pure), ``registry`` names the connectors,
``ends`` and ``memcpy`` are what those of host memory are made of, ``cuda`` is the device's part of
``cuda_ipc``.
"""
