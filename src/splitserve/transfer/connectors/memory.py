"""Copies within one process: for tests and for two engines in one process."""

import os
from collections.abc import Sequence

import msgspec

from splitserve.errors import BugError, TransferFailed
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import LayerReader, LayerWriter, PeerId, Route, TransferEvent
from splitserve.transfer.ends import Ends, GonePeer
from splitserve.transfer.memcpy import HostCopier, HostPool
from splitserve.transfer.peers import Peers, described
from splitserve.transfer.plan import Span, check_own


class _Pool(msgspec.Struct, frozen=True):
    pid: int
    address: int
    nbytes: int
    layout: KVLayout

    def host(self) -> HostPool:
        return HostPool(self.address, self.layout)


class MemoryConnector:
    """The peer's address is used as it is, so the peer's pool must outlive the connection."""

    def __init__(self) -> None:
        self._pool: _Pool | None = None
        self._peers = Peers[_Pool]()
        self._ends = Ends()

    def open(self, region: MemoryRegion, layout: KVLayout) -> None:
        check_own(layout, region.nbytes)
        self._pool = _Pool(os.getpid(), region.address, region.nbytes, layout)

    def describe(self) -> bytes:
        return msgspec.msgpack.encode(self._own())

    def connect(self, peer: bytes) -> PeerId:
        pool = described(peer, _Pool, "memory", self._own().layout)
        if pool.pid != os.getpid():
            raise TransferFailed(
                f"connector memory works within one process; the peer is process {pool.pid}"
            )
        return self._peers.add(pool)

    def layouts(self, peer: PeerId) -> tuple[KVLayout, KVLayout]:
        return self._own().layout, self._peers.layout(peer)

    def route(self, peer: PeerId) -> Route:
        self._peers.known(peer)
        return Route("memory")

    def writer(self, peer: PeerId, spans: Sequence[Span]) -> LayerWriter:
        theirs = self._peers.get(peer)
        if theirs is None:
            return GonePeer(self._ends)
        own = self._own().host()
        return HostCopier(self._ends, spans, own, theirs.host(), lambda: peer in self._peers)

    def reader(self, peer: PeerId, spans: Sequence[Span]) -> LayerReader:
        theirs = self._peers.get(peer)
        if theirs is None:
            return GonePeer(self._ends)
        own = self._own().host()
        return HostCopier(self._ends, spans, theirs.host(), own, lambda: peer in self._peers)

    def poll(self) -> list[TransferEvent]:
        return self._ends.take()

    def disconnect(self, peer: PeerId) -> None:
        self._peers.pop(peer, None)

    def close(self) -> None:
        self._peers.clear()

    def _own(self) -> _Pool:
        if self._pool is None:
            raise BugError("connector is used before open")
        return self._pool
