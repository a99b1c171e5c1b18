"""Copies between GPUs of one host: the peer's pool is opened through CUDA IPC and written to.

The exporter's pool is one cudaMalloc whose handle ``describe`` gives away. The writer opens it on
its own device and writes each layer's blocks with one kernel, over NVLink where the GPUs have it.
Neither the host's memory nor the peer's threads take part.
"""

import logging
import os
import re
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Protocol

import msgspec

from splitserve.errors import (
    BugError,
    ConfigError,
    ProtocolMismatch,
    TransferFailed,
    UnavailableError,
)
from splitserve.loading import load
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import LayerWriter, PeerId, TransferEvent, TransferId
from splitserve.transfer.ends import Ends, GoneWriter
from splitserve.transfer.plan import BlockRun, check_layer, check_own, check_peer, check_runs

log = logging.getLogger(__name__)


class Mark(Protocol):
    """The end of one copy on the device."""

    def ended(self) -> bool:
        """Never waits. Not asked again once true."""
        ...

    def wait(self) -> None: ...


class Copier(Protocol):
    """Copies one set of blocks between two layers, which lie at the given addresses."""

    def copy(self, source: int, target: int) -> Mark:
        """Starts once all that the engine has given the device so far is done; copies end in the
        order in which they were started. Never waits."""
        ...


class PushDevice(Protocol):
    """What the connector needs of one GPU. ``transfer/cuda/push.py`` has it."""

    @property
    def uuid(self) -> str: ...

    def export(self, address: int, nbytes: int) -> bytes:
        """A handle by which another process opens this memory. Raises ConfigError."""
        ...

    def map(self, handle: bytes, uuid: str) -> int:
        """The address here of a peer's memory on GPU ``uuid``. Raises TransferFailed."""
        ...

    def unmap(self, address: int) -> None:
        """Raises TransferFailed."""
        ...

    def copier(self, pairs: "array[int]") -> Copier:
        """``pairs``: source and target block in turn."""
        ...


class _Pool(msgspec.Struct, frozen=True):
    """What ``describe`` says. ``gpu`` is the device's UUID, which all processes agree on."""

    pid: int
    gpu: str
    handle: bytes
    nbytes: int
    layout: KVLayout


@dataclass(frozen=True, slots=True)
class _Own:
    device: PushDevice
    address: int
    pool: _Pool


@dataclass(frozen=True, slots=True)
class _Peer:
    address: int
    layout: KVLayout


@dataclass(frozen=True, slots=True)
class _UnderWay:
    transfer: TransferId
    peer: PeerId
    nbytes: int
    mark: Mark


def _load_device(index: int, block_bytes: int) -> PushDevice:
    try:
        device: PushDevice = load("splitserve.transfer.cuda.push:CudaPush")(index, block_bytes)
    except ImportError as error:
        raise UnavailableError(
            f"connector cuda_ipc needs torch for CUDA, triton and cuda-bindings: {error}"
        ) from error
    return device


class CudaIpcConnector:
    """Same host, and each process sees both GPUs (or both use the same one)."""

    def __init__(self, open_device: Callable[[int, int], PushDevice] = _load_device) -> None:
        """``open_device`` takes the GPU's number and the bytes of a block."""
        self._open_device = open_device
        self._opened: _Own | None = None
        self._peers: dict[PeerId, _Peer] = {}
        self._ids = count(1)
        self._ends = Ends()
        self._under_way: deque[_UnderWay] = deque()

    def open(self, region: MemoryRegion, layout: KVLayout) -> None:
        check_own(layout, region.nbytes)
        device = self._open_device(_gpu_of(region), layout.block_bytes)
        handle = device.export(region.address, region.nbytes)
        pool = _Pool(os.getpid(), device.uuid, handle, region.nbytes, layout)
        self._opened = _Own(device, region.address, pool)

    def describe(self) -> bytes:
        return msgspec.msgpack.encode(self._own().pool)

    def connect(self, peer: bytes) -> PeerId:
        own = self._own()
        try:
            pool = msgspec.msgpack.decode(peer, type=_Pool)
        except msgspec.DecodeError as error:
            raise ProtocolMismatch(f"peer is not of connector cuda_ipc: {error}") from error
        check_peer(own.pool.layout, pool.layout, pool.nbytes)
        if pool.pid == own.pool.pid:
            raise TransferFailed("connector cuda_ipc works between processes, not within one")
        address = own.device.map(pool.handle, pool.gpu)
        peer_id = PeerId(next(self._ids))
        self._peers[peer_id] = _Peer(address, pool.layout)
        return peer_id

    def writer(self, peer: PeerId, runs: Sequence[BlockRun]) -> LayerWriter:
        own = self._own()
        target = self._peers.get(peer)
        if target is None:
            return GoneWriter(self._ends)
        check_runs(runs, own.pool.layout.num_blocks, target.layout.num_blocks)
        return _Writer(self, peer, own.device.copier(_pairs(runs)), sum(run.count for run in runs))

    def start(self, peer: PeerId, copier: Copier, blocks: int, layer: int) -> TransferId:
        """For this connector's writers: one layer of ``blocks`` blocks."""
        own = self._own()
        source = own.pool.layout
        check_layer(layer, source)
        target = self._peers.get(peer)
        if target is None:
            return self._ends.not_sent(layer)
        transfer = self._ends.begin()
        mark = copier.copy(
            own.address + source.offset(layer, 0), target.address + target.layout.offset(layer, 0)
        )
        self._under_way.append(_UnderWay(transfer, peer, blocks * source.block_bytes, mark))
        return transfer

    def poll(self) -> list[TransferEvent]:
        while self._under_way and self._under_way[0].mark.ended():
            write = self._under_way.popleft()
            self._ends.done(write.transfer, write.nbytes)
        return self._ends.take()

    def disconnect(self, peer: PeerId) -> None:
        """Waits for the writes that the device has: at most the steps that are being computed."""
        gone = self._peers.pop(peer, None)
        if gone is None:
            return
        last = next((write for write in reversed(self._under_way) if write.peer == peer), None)
        if last is not None:
            last.mark.wait()
        try:
            self._own().device.unmap(gone.address)
        except TransferFailed as error:
            # No write uses it any more; what is lost is address space.
            log.warning("%s", error)

    def close(self) -> None:
        for peer in list(self._peers):
            self.disconnect(peer)

    def _own(self) -> _Own:
        if self._opened is None:
            raise BugError("connector is used before open")
        return self._opened


@dataclass(frozen=True, slots=True)
class _Writer:
    connector: CudaIpcConnector
    peer: PeerId
    copier: Copier
    blocks: int

    def write(self, layer: int) -> TransferId:
        return self.connector.start(self.peer, self.copier, self.blocks, layer)


def _gpu_of(region: MemoryRegion) -> int:
    match = re.fullmatch(r"cuda:(\d+)", region.device)
    if match is None:
        raise ConfigError(
            f"connector cuda_ipc needs a KV pool on a GPU, this one is on {region.device}: choose "
            "connector shm or auto"
        )
    return int(match[1])


def _pairs(runs: Sequence[BlockRun]) -> "array[int]":
    """Source and target block in turn."""
    pairs = array("i")
    for run in runs:
        if run.count == 1:
            pairs.append(run.source)
            pairs.append(run.target)
            continue
        sources = range(run.source, run.source + run.count)
        targets = range(run.target, run.target + run.count)
        pairs.extend(chain.from_iterable(zip(sources, targets, strict=True)))
    return pairs
