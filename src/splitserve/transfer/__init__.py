"""Moves KV bytes between workers. Receives block numbers from a role, gives back events.

``base`` is the seam for one pool, ``sharded`` joins all pools of a worker for the roles, ``plan``
says which bytes go where (pure), ``registry`` names the connectors, ``options`` is what those
between hosts may be told. All are made of ``peers`` and ``ends``, those that copy by memcpy also of
``memcpy``. ``tcp``, ``nixl`` and ``mooncake`` have what one connector alone needs, ``cuda`` the
device's part, ``posting`` what ``nixl`` and ``mooncake`` share.
"""
