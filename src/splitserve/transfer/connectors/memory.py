"""Copies within one process: for tests and for two engines in one process."""

import ctypes
import os
from collections.abc import Sequence
from itertools import count

import msgspec

from splitserve.errors import BugError, TransferFailed
from splitserve.protocol.memory import Copy, KVLayout, MemoryRegion
from splitserve.transfer.base import PeerId, TransferEvent, TransferId
from splitserve.transfer.bounds import check_bounds
from splitserve.transfer.plan import check_compatible


class _Pool(msgspec.Struct, frozen=True):
    pid: int
    address: int
    nbytes: int
    layout: KVLayout


class MemoryConnector:
    """The peer's address is used as it is, so the peer's pool must outlive the connection."""

    def __init__(self) -> None:
        self._pool: _Pool | None = None
        self._peers: dict[PeerId, _Pool] = {}
        self._ids = count(1)
        self._events: list[TransferEvent] = []

    def open(self, region: MemoryRegion, layout: KVLayout) -> None:
        self._pool = _Pool(os.getpid(), region.address, region.nbytes, layout)

    def describe(self) -> bytes:
        return msgspec.msgpack.encode(self._own())

    def connect(self, peer: bytes) -> PeerId:
        pool = _decode(peer)
        if pool.pid != os.getpid():
            raise TransferFailed(
                f"connector memory works within one process; the peer is process {pool.pid}"
            )
        check_compatible(self._own().layout, pool.layout)
        peer_id = PeerId(next(self._ids))
        self._peers[peer_id] = pool
        return peer_id

    def layout(self, peer: PeerId) -> KVLayout:
        return self._peers[peer].layout

    def write(self, peer: PeerId, copies: Sequence[Copy]) -> TransferId:
        transfer = TransferId(next(self._ids))
        target = self._peers.get(peer)
        if target is None:
            self._events.append(TransferEvent(transfer, "failed", 0, "peer is not connected"))
            return transfer
        own = self._own()
        total = 0
        for copy in copies:
            check_bounds(copy, own.nbytes, target.nbytes)
            ctypes.memmove(target.address + copy.target, own.address + copy.source, copy.nbytes)
            total += copy.nbytes
        self._events.append(TransferEvent(transfer, "done", total))
        return transfer

    def poll(self) -> list[TransferEvent]:
        events, self._events = self._events, []
        return events

    def disconnect(self, peer: PeerId) -> None:
        self._peers.pop(peer, None)

    def close(self) -> None:
        self._peers.clear()

    def _own(self) -> _Pool:
        if self._pool is None:
            raise BugError("connector is used before open")
        return self._pool


def _decode(peer: bytes) -> _Pool:
    try:
        return msgspec.msgpack.decode(peer, type=_Pool)
    except msgspec.DecodeError as error:
        raise TransferFailed(f"peer is not of connector memory: {error}") from error
