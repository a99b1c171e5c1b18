"""KV blocks kept on the host, behind the prefix cache: in memory first, then on disk.

Receives from a role the names of blocks and where they lie in the pool, gives back how many it
found. ``config`` is what is asked for (pure), ``format`` says what a block's file looks like
(pure), ``store`` keeps files within a bound that all processes of the host share, ``levels`` puts
memory in front of disk, ``worker_thread`` does it beside the engine's thread, ``copier`` is the
seam to the pool, ``opening`` joins the parts.
"""
