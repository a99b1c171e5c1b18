"""Copies by NIXL, through UCX: RDMA between hosts, CUDA IPC or the kernel within one, else TCP.

UCX chooses the way by itself (``UCX_TLS`` limits it; it must leave tcp or an RDMA transport, since
shared memory alone tells no peer's death). On one host and the CPU that is a copy by the kernel
(cma), which needs the right to trace the other process: the same user, and no seccomp profile that
forbids it.

Over TCP the receiving process itself puts the bytes in place. So a writer that dies while its peer
is frozen may leave bytes that land when the peer thaws; the other ways have no such rest.
"""

from collections.abc import Callable

from splitserve.errors import ConfigError
from splitserve.loading import load
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import PeerId, Route
from splitserve.transfer.hosts import host_id
from splitserve.transfer.nixl.agent import NixlAgent
from splitserve.transfer.nixl.path import Way, likely_route, open_ways
from splitserve.transfer.plan import check_own
from splitserve.transfer.posting.connector import PATIENCE_S, Description, PostingConnector
from splitserve.transfer.posting.started import Agent, Marks


class _Pool(Description, frozen=True):
    host: str
    ways: list[Way]


class NixlConnector(PostingConnector[_Pool]):
    """Any two hosts that UCX can join."""

    def __init__(
        self,
        open_agent: Callable[[MemoryRegion], Agent] = NixlAgent,
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__("nixl", _Pool, patience_s)
        self._open_agent = open_agent

    def open(self, region: MemoryRegion, layout: KVLayout) -> None:
        check_own(layout, region.nbytes)

        def describe(name: str, metadata: bytes) -> _Pool:
            return _Pool(
                name,
                metadata,
                region.device,
                region.address,
                region.nbytes,
                layout,
                host_id(),
                open_ways(region.device),
            )

        self._open(lambda: self._open_agent(region), _marks(region.device), describe)

    def route(self, peer: PeerId) -> Route:
        """What UCX probably chose: nobody can ask it."""
        own, theirs = self._own().pool, self._peers.known(peer)
        return likely_route(own.host, own.ways, theirs.host, theirs.ways)


def _marks(device: str) -> Marks | None:
    """None for memory of the host. Raises ConfigError."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return None
    if kind != "cuda" or not number.isdigit():
        raise ConfigError(f"connector nixl knows no device {device}: choose cpu or cuda:N")
    marks: Marks = load("splitserve.transfer.cuda.stored:StoredMarks")(int(number))
    return marks
