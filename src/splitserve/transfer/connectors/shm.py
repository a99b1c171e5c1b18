"""Copies between processes of one host through shared memory (Linux).

The pool lies in an anonymous shared file (memfd). A peer opens it through ``/proc/PID/fd/N``, so
there is no name that a killed process could leave behind; the inode number guards against a
reused process id. A write is a memcpy and is complete when ``write`` returns.
"""

import ctypes
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import msgspec

from splitserve.errors import BugError, ConfigError, ProtocolMismatch, TransferFailed
from splitserve.protocol.memory import Copy, KVLayout, MemoryRegion
from splitserve.transfer.base import PeerId, TransferEvent, TransferId
from splitserve.transfer.bounds import check_bounds
from splitserve.transfer.plan import check_compatible


class _SharedPool(msgspec.Struct, frozen=True):
    pid: int
    fd: int
    inode: int
    nbytes: int
    layout: KVLayout


@dataclass(frozen=True, slots=True)
class _Peer:
    pool: _SharedPool
    mapping: mmap.mmap
    view: ctypes.Array[ctypes.c_char]

    @property
    def address(self) -> int:
        return ctypes.addressof(self.view)


class ShmConnector:
    """Same host, same user."""

    def __init__(self) -> None:
        self._region: MemoryRegion | None = None
        self._description = b""
        self._layout: KVLayout | None = None
        self._peers: dict[PeerId, _Peer] = {}
        self._ids = count(1)
        self._events: list[TransferEvent] = []

    def open(self, region: MemoryRegion, layout: KVLayout) -> None:
        if region.shared_fd < 0:
            raise ConfigError("connector shm needs a KV pool in shared memory")
        inode = os.fstat(region.shared_fd).st_ino
        pool = _SharedPool(os.getpid(), region.shared_fd, inode, region.nbytes, layout)
        self._region, self._layout = region, layout
        self._description = msgspec.msgpack.encode(pool)

    def describe(self) -> bytes:
        self._own()
        return self._description

    def connect(self, peer: bytes) -> PeerId:
        try:
            pool = msgspec.msgpack.decode(peer, type=_SharedPool)
        except msgspec.DecodeError as error:
            raise ProtocolMismatch(f"peer is not of connector shm: {error}") from error
        _, layout = self._own()
        check_compatible(layout, pool.layout)
        mapping = _map(pool)
        view = (ctypes.c_char * pool.nbytes).from_buffer(mapping)
        peer_id = PeerId(next(self._ids))
        self._peers[peer_id] = _Peer(pool, mapping, view)
        return peer_id

    def layout(self, peer: PeerId) -> KVLayout:
        return self._peers[peer].pool.layout

    def write(self, peer: PeerId, copies: Sequence[Copy]) -> TransferId:
        transfer = TransferId(next(self._ids))
        target = self._peers.get(peer)
        if target is None:
            self._events.append(TransferEvent(transfer, "failed", 0, "peer is not connected"))
            return transfer
        region, _ = self._own()
        total = 0
        for copy in copies:
            check_bounds(copy, region.nbytes, target.pool.nbytes)
            ctypes.memmove(target.address + copy.target, region.address + copy.source, copy.nbytes)
            total += copy.nbytes
        self._events.append(TransferEvent(transfer, "done", total))
        return transfer

    def poll(self) -> list[TransferEvent]:
        events, self._events = self._events, []
        return events

    def disconnect(self, peer: PeerId) -> None:
        gone = self._peers.pop(peer, None)
        if gone is None:
            return
        mapping = gone.mapping
        del gone  # the ctypes view holds the mapping's buffer; it must go before close
        mapping.close()

    def close(self) -> None:
        for peer in list(self._peers):
            self.disconnect(peer)

    def _own(self) -> tuple[MemoryRegion, KVLayout]:
        if self._region is None or self._layout is None:
            raise BugError("connector is used before open")
        return self._region, self._layout


def _map(pool: _SharedPool) -> mmap.mmap:
    path = f"/proc/{pool.pid}/fd/{pool.fd}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise TransferFailed(
            f"cannot open the peer's KV pool (process {pool.pid}): {error.strerror}; "
            "connector shm needs both workers on one host, under one user"
        ) from error
    try:
        if os.fstat(fd).st_ino != pool.inode:
            raise TransferFailed(f"process {pool.pid} is not the peer any more")
        return mmap.mmap(fd, pool.nbytes)
    except (OSError, ValueError) as error:
        raise TransferFailed(f"cannot map the peer's KV pool: {error}") from error
    finally:
        os.close(fd)
