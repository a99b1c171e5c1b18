"""Ports for processes that have to be told theirs."""

import os
import socket
from collections.abc import Iterator
from typing import Final

from splitserve.errors import UnavailableError
from splitserve.launch.topology import VLLM, Topology

_FIRST: Final = 20_000
_END: Final = 32_768
"""Linux gives outgoing connections ports from here on: one of them could sit on a port of ours
while its process is being restarted."""


def ports_needed(topology: Topology) -> int:
    """Two for each vLLM instance that is started, HTTP and side channel, and one in place of any
    that turns out to be the gateway's."""
    started = sum(
        group.count for group in topology.workers if group.engine == VLLM and not group.attached
    )
    return 2 * started + 1 if started else 0


def free_ports(count: int) -> tuple[int, ...]:
    """``count`` different TCP ports of this machine that nobody listens on now.

    The search begins elsewhere in each process, so that two that start together do not meet.
    Raises UnavailableError when there are not so many.
    """
    begin = os.getpid() * 16 % (_END - _FIRST)
    candidates = [_FIRST + (begin + step) % (_END - _FIRST) for step in range(_END - _FIRST)]
    found = tuple(port for port, _ in zip(_free(candidates), range(count), strict=False))
    if len(found) < count:
        raise UnavailableError(f"no {count} free ports between {_FIRST} and {_END}")
    return found


def _free(candidates: list[int]) -> Iterator[int]:
    for port in candidates:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port
