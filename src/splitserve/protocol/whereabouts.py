"""Where a worker's process is, as far as the ways to it depend on that."""

from typing import Final

import msgspec


class Whereabouts(msgspec.Struct, frozen=True, omit_defaults=True):
    """``host`` is the same for all processes of one boot of one host, ``reach`` for those of them
    that may open each other's memory: one user, one container. Empty where that is unknown.
    ``rdma``: a port of an RDMA device is up there."""

    host: str = ""
    reach: str = ""
    rdma: bool = False


UNKNOWN: Final = Whereabouts()
