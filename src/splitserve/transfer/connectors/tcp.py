"""Copies between hosts over TCP: several streams per peer, checksums, TLS where asked for.

Threads of its own do all the moving; the engine's thread only puts work into a queue. Bytes go from
one pool's memory into the other's, without a copy in between in this program.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Annotated

import msgspec

from splitserve.errors import BugError, ConfigError
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
from splitserve.transfer.options import NetworkOptions
from splitserve.transfer.peers import Peers, described
from splitserve.transfer.plan import Span, check_layer, check_own, check_spans
from splitserve.transfer.tcp.batches import Batch, EndQueue, Part, Started, cut
from splitserve.transfer.tcp.frames import Kind
from splitserve.transfer.tcp.owner import Owner
from splitserve.transfer.tcp.sender import Reach, Sender


class _Pool(msgspec.Struct, frozen=True):
    """What ``describe`` says. ``token`` lets a peer in, see ``Owner``; who writes must not give a
    frame up before the owner does, after ``stall_s``."""

    host: Annotated[str, msgspec.Meta(pattern=r"^[^\0]{1,255}$")]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    token: bytes
    stall_s: Annotated[float, msgspec.Meta(gt=0, le=3600)]
    nbytes: int
    layout: KVLayout


@dataclass(frozen=True, slots=True)
class _Own:
    owner: Owner
    pool: _Pool
    memory: memoryview


@dataclass(frozen=True, slots=True)
class _Peer:
    sender: Sender
    layout: KVLayout


class TcpConnector:
    """Between any two hosts that reach each other; pools in host memory."""

    def __init__(self, options: NetworkOptions | None = None) -> None:
        """The default is to listen on this host's loopback address."""
        self._options = options or NetworkOptions()
        self._opened: _Own | None = None
        self._peers = Peers[_Peer]()
        self._ends = Ends()
        self._ended: EndQueue = SimpleQueue()

    def open(self, region: MemoryRegion, layout: KVLayout) -> None:
        check_own(layout, region.nbytes)
        if region.device != "cpu":
            raise ConfigError(
                f"connector tcp needs a KV pool in host memory, this one is on {region.device}: "
                "choose connector nixl"
            )
        memory = memoryview((ctypes.c_char * region.nbytes).from_address(region.address)).cast("B")
        owner = Owner(self._options, memory)
        host, stall_s = self._options.host, self._options.stall_s
        pool = _Pool(host, owner.port, owner.token, stall_s, region.nbytes, layout)
        self._opened = _Own(owner, pool, memory)

    def describe(self) -> bytes:
        return msgspec.msgpack.encode(self._own().pool)

    def connect(self, peer: bytes) -> PeerId:
        own = self._own()
        pool = described(peer, _Pool, "tcp", own.pool.layout)
        options = self._options
        stall_s = max(pool.stall_s, options.stall_s)
        reach = Reach(pool.host, pool.port, pool.token, stall_s, options.checksums, options.tls)
        sender = Sender(reach, options.streams, own.memory)
        return self._peers.add(_Peer(sender, pool.layout))

    def layouts(self, peer: PeerId) -> tuple[KVLayout, KVLayout]:
        return self._own().pool.layout, self._peers.layout(peer)

    def route(self, peer: PeerId) -> Route:
        self._peers.known(peer)
        return Route("tcp")

    def writer(self, peer: PeerId, spans: Sequence[Span]) -> LayerWriter:
        if peer not in self._peers:
            return GonePeer(self._ends)
        ours, theirs = self.layouts(peer)
        check_spans(spans, ours.layer_bytes, theirs.layer_bytes)
        return _Layers(self, peer, Kind.PUT, self._cut(spans, reading=False))

    def reader(self, peer: PeerId, spans: Sequence[Span]) -> LayerReader:
        if peer not in self._peers:
            return GonePeer(self._ends)
        ours, theirs = self.layouts(peer)
        check_spans(spans, theirs.layer_bytes, ours.layer_bytes)
        return _Layers(self, peer, Kind.GET, self._cut(spans, reading=True))

    def _cut(self, spans: Sequence[Span], reading: bool) -> list[list[Part]]:
        return cut(spans, reading, self._options.streams)

    def start(self, layers: "_Layers", layer: int) -> TransferId:
        """For this connector's writers and readers: one layer."""
        own = self._own().pool.layout
        check_layer(layer, own)
        peer = self._peers.get(layers.peer)
        if peer is None:
            return self._ends.not_sent(layer)
        transfer = self._ends.begin()
        if not layers.frames:
            self._ends.done(transfer, 0)
            return transfer
        started = Started(transfer, len(layers.frames), self._ended)
        starts = layer * own.layer_bytes, layer * peer.layout.layer_bytes
        for parts in layers.frames:
            peer.sender.submit(Batch(started, layers.kind, parts, *starts))
        return transfer

    def poll(self) -> list[TransferEvent]:
        events = self._ends.take()
        while True:
            try:
                events.append(self._ended.get_nowait())
            except Empty:
                return events

    def disconnect(self, peer: PeerId) -> None:
        """Waits for the frames that are under way. Where the peer hangs, that takes up to twice
        ``stall_s``."""
        gone = self._peers.pop(peer, None)
        if gone is not None:
            gone.sender.leave()

    def close(self) -> None:
        for peer in list(self._peers):
            self.disconnect(peer)
        if self._opened is not None:
            self._opened.owner.close()

    def _own(self) -> _Own:
        if self._opened is None:
            raise BugError("connector is used before open")
        return self._opened


@dataclass(frozen=True, slots=True)
class _Layers:
    """The LayerWriter or LayerReader: one set of spans, as the frames of each layer."""

    connector: TcpConnector
    peer: PeerId
    kind: Kind
    frames: Sequence[Sequence[Part]]

    def write(self, layer: int) -> TransferId:
        return self.connector.start(self, layer)

    def read(self, layer: int) -> TransferId:
        return self.connector.start(self, layer)
