"""What a connector between hosts is measured against: the same bytes by the plainest program that
uses the same means.

For ``tcp`` that is a socket, for ``nixl`` and ``mooncake`` the library alone. Each has a process of
its own at the other end.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from splitserve.bench.loopback import plain_socket
from splitserve.bench.plain_library import Prepare, plain_mooncake, plain_nixl
from splitserve.bench.pool import Device, Pool


@contextmanager
def plain_move(
    connector: str, source: Pool, device: Device, nbytes: int
) -> Iterator[Prepare | None]:
    """``nbytes`` at a time, out of ``source`` into a pool like it. None for a connector that copies
    memory: that has memcpy beside it.

    Raises UnavailableError when the other process fails.
    """
    match connector:
        case "tcp":
            with plain_socket(nbytes) as sock:
                yield lambda _: sock.send_s
        case "nixl":
            with plain_nixl(source, device) as prepare:
                yield prepare
        case "mooncake":
            with plain_mooncake(source) as prepare:
                yield prepare
        case _:
            yield None
