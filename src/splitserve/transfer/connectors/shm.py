"""Copies between processes of one host through shared memory (Linux).

The pool lies in an anonymous shared file (memfd). A peer opens it through ``/proc/PID/fd/N``, so
there is no name that a killed process could leave behind; the inode number guards against a
reused process id. A transfer is a memcpy and is complete when it has been started.
"""

import ctypes
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from splitserve.errors import BugError, ConfigError, TransferFailed
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import LayerReader, LayerWriter, PeerId, Route, TransferEvent
from splitserve.transfer.ends import Ends, GonePeer
from splitserve.transfer.memcpy import HostCopier, HostPool
from splitserve.transfer.peers import Peers, described
from splitserve.transfer.plan import Span, check_own


class _SharedPool(msgspec.Struct, frozen=True):
    pid: int
    fd: int
    inode: int
    nbytes: int
    layout: KVLayout


@dataclass(frozen=True, slots=True)
class _Peer:
    layout: KVLayout
    mapping: mmap.mmap
    view: ctypes.Array[ctypes.c_char]

    def host(self) -> HostPool:
        return HostPool(ctypes.addressof(self.view), self.layout)


class ShmConnector:
    """Same host, same user."""

    def __init__(self) -> None:
        self._pool: HostPool | None = None
        self._description = b""
        self._peers = Peers[_Peer]()
        self._ends = Ends()

    def open(self, region: MemoryRegion, layout: KVLayout) -> None:
        check_own(layout, region.nbytes)
        if region.shared_fd < 0:
            raise ConfigError("connector shm needs a KV pool in shared memory")
        inode = os.fstat(region.shared_fd).st_ino
        pool = _SharedPool(os.getpid(), region.shared_fd, inode, region.nbytes, layout)
        self._pool = HostPool(region.address, layout)
        self._description = msgspec.msgpack.encode(pool)

    def describe(self) -> bytes:
        self._own()
        return self._description

    def connect(self, peer: bytes) -> PeerId:
        pool = described(peer, _SharedPool, "shm", self._own().layout)
        mapping = _map(pool)
        view = (ctypes.c_char * pool.nbytes).from_buffer(mapping)
        return self._peers.add(_Peer(pool.layout, mapping, view))

    def layouts(self, peer: PeerId) -> tuple[KVLayout, KVLayout]:
        return self._own().layout, self._peers.layout(peer)

    def route(self, peer: PeerId) -> Route:
        self._peers.known(peer)
        return Route("shm")

    def writer(self, peer: PeerId, spans: Sequence[Span]) -> LayerWriter:
        theirs = self._peers.get(peer)
        if theirs is None:
            return GonePeer(self._ends)
        own = self._own()
        return HostCopier(self._ends, spans, own, theirs.host(), lambda: peer in self._peers)

    def reader(self, peer: PeerId, spans: Sequence[Span]) -> LayerReader:
        theirs = self._peers.get(peer)
        if theirs is None:
            return GonePeer(self._ends)
        own = self._own()
        return HostCopier(self._ends, spans, theirs.host(), own, lambda: peer in self._peers)

    def poll(self) -> list[TransferEvent]:
        return self._ends.take()

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

    def _own(self) -> HostPool:
        if self._pool is None:
            raise BugError("connector is used before open")
        return self._pool


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
    except (OSError, ValueError, OverflowError) as error:
        raise TransferFailed(f"cannot map the peer's KV pool: {error}") from error
    finally:
        os.close(fd)
