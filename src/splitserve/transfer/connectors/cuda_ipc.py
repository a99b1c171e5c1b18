"""Copies between GPUs of one host: the peer's pool is opened through CUDA IPC and written to.

The exporter's pool is one cudaMalloc whose handle ``describe`` gives away. The peer opens it on its
own device and writes or reads each layer's spans with one kernel, over NVLink where the GPUs have
it. Neither the host's memory nor the exporter's threads take part.
"""

import logging
import os
import re
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import msgspec

from splitserve.errors import (
    BugError,
    ConfigError,
    TransferFailed,
    UnavailableError,
)
from splitserve.loading import load
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import (
    LayerReader,
    LayerWriter,
    PeerId,
    Route,
    TransferEvent,
    TransferId,
)
from splitserve.transfer.ends import Ends, GonePeer
from splitserve.transfer.peers import Peers, described
from splitserve.transfer.plan import (
    Span,
    check_layer,
    check_own,
    check_spans,
    uniform_piece,
)

log = logging.getLogger(__name__)


class Mark(Protocol):
    """The end of one copy on the device."""

    def ended(self) -> bool:
        """Never waits. Not asked again once true."""
        ...

    def wait(self) -> None: ...


class Copier(Protocol):
    """Copies one set of pieces between two layers, which lie at the given addresses."""

    def copy(self, source: int, target: int) -> Mark:
        """Starts once all that the engine has given the device so far is done; copies end in the
        order in which they were started. Never waits."""
        ...


class CopyDevice(Protocol):
    """What the connector needs of one GPU. ``transfer/cuda/copies.py`` has it."""

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

    def copier(self, pairs: "array[int]", piece: int) -> Copier:
        """``pairs``: source and target in turn, as numbers of pieces of ``piece`` bytes."""
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
    device: CopyDevice
    address: int
    pool: _Pool


@dataclass(frozen=True, slots=True)
class _Place:
    """A pool where kernels of our GPU find it."""

    address: int
    layout: KVLayout

    def layer(self, layer: int) -> int:
        return self.address + layer * self.layout.layer_bytes


@dataclass(frozen=True, slots=True)
class _UnderWay:
    transfer: TransferId
    peer: PeerId
    nbytes: int
    mark: Mark


def _load_device(index: int, block_bytes: int) -> CopyDevice:
    try:
        device: CopyDevice = load("splitserve.transfer.cuda.copies:CudaCopies")(index, block_bytes)
    except ImportError as error:
        raise UnavailableError(
            f"connector cuda_ipc needs torch for CUDA, triton and cuda-bindings: {error}"
        ) from error
    return device


class CudaIpcConnector:
    """Same host, and each process sees both GPUs (or both use the same one)."""

    def __init__(self, open_device: Callable[[int, int], CopyDevice] = _load_device) -> None:
        """``open_device`` takes the GPU's number and the bytes of a block."""
        self._open_device = open_device
        self._opened: _Own | None = None
        self._peers = Peers[_Place]()
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
        pool = described(peer, _Pool, "cuda_ipc", own.pool.layout)
        if pool.pid == own.pool.pid:
            raise TransferFailed("connector cuda_ipc works between processes, not within one")
        address = own.device.map(pool.handle, pool.gpu)
        return self._peers.add(_Place(address, pool.layout))

    def layouts(self, peer: PeerId) -> tuple[KVLayout, KVLayout]:
        return self._own().pool.layout, self._peers.layout(peer)

    def route(self, peer: PeerId) -> Route:
        self._peers.known(peer)
        return Route("cuda_ipc")

    def writer(self, peer: PeerId, spans: Sequence[Span]) -> LayerWriter:
        theirs = self._peers.get(peer)
        if theirs is None:
            return GonePeer(self._ends)
        own = self._own()
        return self._copier(peer, spans, _Place(own.address, own.pool.layout), theirs)

    def reader(self, peer: PeerId, spans: Sequence[Span]) -> LayerReader:
        theirs = self._peers.get(peer)
        if theirs is None:
            return GonePeer(self._ends)
        own = self._own()
        return self._copier(peer, spans, theirs, _Place(own.address, own.pool.layout))

    def start(self, copy: "_LayerCopy", layer: int) -> TransferId:
        """For this connector's writers and readers: one layer."""
        check_layer(layer, copy.source.layout)
        if copy.peer not in self._peers:
            return self._ends.not_sent(layer)
        transfer = self._ends.begin()
        mark = copy.copier.copy(copy.source.layer(layer), copy.target.layer(layer))
        self._under_way.append(_UnderWay(transfer, copy.peer, copy.nbytes, mark))
        return transfer

    def poll(self) -> list[TransferEvent]:
        while self._under_way and self._under_way[0].mark.ended():
            copy = self._under_way.popleft()
            self._ends.done(copy.transfer, copy.nbytes)
        return self._ends.take()

    def disconnect(self, peer: PeerId) -> None:
        """Waits for the copies that the device has: at most the steps that are being computed."""
        gone = self._peers.pop(peer, None)
        if gone is None:
            return
        last = next((copy for copy in reversed(self._under_way) if copy.peer == peer), None)
        if last is not None:
            last.mark.wait()
        try:
            self._own().device.unmap(gone.address)
        except TransferFailed as error:
            # No copy uses it any more; what is lost is address space.
            log.warning("%s", error)

    def close(self) -> None:
        for peer in list(self._peers):
            self.disconnect(peer)

    def _copier(
        self, peer: PeerId, spans: Sequence[Span], source: _Place, target: _Place
    ) -> "_LayerCopy":
        check_spans(spans, source.layout.layer_bytes, target.layout.layer_bytes)
        # Whole blocks at most: so a device sees few sizes of pieces, most often one.
        piece = uniform_piece(spans, source.layout.block_bytes, target.layout.block_bytes)
        copier = self._own().device.copier(_pairs(spans, piece), piece)
        return _LayerCopy(self, peer, copier, source, target, sum(span.nbytes for span in spans))

    def _own(self) -> _Own:
        if self._opened is None:
            raise BugError("connector is used before open")
        return self._opened


@dataclass(frozen=True, slots=True)
class _LayerCopy:
    """The LayerWriter and LayerReader: one set of spans."""

    connector: CudaIpcConnector
    peer: PeerId
    copier: Copier
    source: _Place
    target: _Place
    nbytes: int

    def write(self, layer: int) -> TransferId:
        return self.connector.start(self, layer)

    def read(self, layer: int) -> TransferId:
        return self.connector.start(self, layer)


def _gpu_of(region: MemoryRegion) -> int:
    match = re.fullmatch(r"cuda:(\d+)", region.device)
    if match is None:
        raise ConfigError(
            f"connector cuda_ipc needs a KV pool on a GPU, this one is on {region.device}: choose "
            "connector shm or auto"
        )
    return int(match[1])


def _pairs(spans: Sequence[Span], piece: int) -> "array[int]":
    """Source and target of each piece in turn, counted in pieces."""
    pairs = array("i")
    for span in spans:
        source, target, count = span.source // piece, span.target // piece, span.nbytes // piece
        if count == 1:
            pairs.append(source)
            pairs.append(target)
            continue
        sources, targets = range(source, source + count), range(target, target + count)
        pairs.extend(chain.from_iterable(zip(sources, targets, strict=True)))
    return pairs
