"""A worker whose KV copies go wrong when a file says so. Run as ``splitserve`` is run.

The file named by the environment variable FAULTS holds one word:

    stall      writes start and do not end; they land once the word is gone
    half       the first layer of what is written and read is copied, and the others stall
    half_pool  half of what is written into one pool of the other worker; that into others lands
    keep       what stalls goes on to stall, and nothing else goes wrong
    fail       the connector says that writes failed
    corrupt    writes land with other bytes, and the connector knows nothing of it
    duplicate  the last KVReady is sent again, and every later one twice
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from splitserve.cli.main import main
from splitserve.loading import load
from splitserve.protocol.codec import Message
from splitserve.protocol.handoff import KVReady
from splitserve.roles.loop import Outbox
from splitserve.roles.port import ConnId
from splitserve.transfer import registry
from splitserve.transfer.base import (
    Connector,
    LayerReader,
    LayerWriter,
    PeerId,
    TransferEvent,
    TransferId,
)
from splitserve.transfer.options import NetworkOptions
from splitserve.transfer.plan import Span

TOKEN_BYTES = 16
"""Of one token in the fake engine's pool, of one layer, K or V, and head."""

FAULTS = Path(os.environ["FAULTS"])


def asked() -> str:
    try:
        return FAULTS.read_text()
    except FileNotFoundError:
        return ""


class Repeater:
    """Remembers the last KVReady and where it went."""

    def __init__(self) -> None:
        self._send = Outbox.send
        self._last: tuple[Outbox, ConnId, Message] | None = None
        self._repeated = False

    def send(self, outbox: Outbox, conn: ConnId, message: Message) -> None:
        self._send(outbox, conn, message)
        if isinstance(message, KVReady):
            self._last = outbox, conn, message
            if asked() == "duplicate":
                self._send(*self._last)

    def look(self) -> None:
        wanted = asked() == "duplicate"
        if wanted and not self._repeated and self._last is not None:
            self._send(*self._last)
        self._repeated = wanted


REPEATER = Repeater()


@dataclass
class Stalled:
    """A copy that was not started: it is told of by a number of ours."""

    transfer: TransferId
    peer: PeerId
    begin: Callable[[], TransferId]


@dataclass
class FaultyWriter:
    """One set of spans of a FaultyConnector."""

    connector: "FaultyConnector"
    peer: PeerId
    spans: Sequence[Span]
    real: LayerWriter

    def write(self, layer: int) -> TransferId:
        fault = asked()
        half = fault == "half" or (fault == "half_pool" and self.peer == self.connector.newest)
        if fault == "stall" or (half and layer):
            return self.connector.stall(self.peer, lambda: self.begin(layer))
        return self.connector.started(self.begin(layer))

    def begin(self, layer: int) -> TransferId:
        """As the connector numbers it. What goes wrong is asked now: a write that stalled may."""
        fault = asked()
        if fault == "corrupt":
            return self.connector.write_other(self, layer)
        real = self.real.write(layer)
        if fault == "fail":
            self.connector.fail(real)
        return real


@dataclass
class FaultyReader:
    connector: "FaultyConnector"
    peer: PeerId
    real: LayerReader

    def read(self, layer: int) -> TransferId:
        if asked() == "half" and layer:
            return self.connector.stall(self.peer, lambda: self.real.read(layer))
        return self.connector.started(self.real.read(layer))


class FaultyConnector:
    """Any connector, that does what the file says."""

    def __init__(self, real: Connector) -> None:
        self._real = real
        self._last = 0
        self._names: dict[TransferId, TransferId] = {}
        self._failed: set[TransferId] = set()
        self._stalled: list[Stalled] = []
        self._gone: list[TransferEvent] = []
        self.newest: PeerId | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def connect(self, peer: bytes) -> PeerId:
        self.newest = self._real.connect(peer)
        return self.newest

    def writer(self, peer: PeerId, spans: Sequence[Span]) -> FaultyWriter:
        return FaultyWriter(self, peer, spans, self._real.writer(peer, spans))

    def reader(self, peer: PeerId, spans: Sequence[Span]) -> FaultyReader:
        return FaultyReader(self, peer, self._real.reader(peer, spans))

    def started(self, real: TransferId) -> TransferId:
        self._names[real] = self._begin()
        return self._names[real]

    def fail(self, real: TransferId) -> None:
        self._failed.add(real)

    def stall(self, peer: PeerId, begin: Callable[[], TransferId]) -> TransferId:
        transfer = self._begin()
        self._stalled.append(Stalled(transfer, peer, begin))
        return transfer

    def write_other(self, writer: FaultyWriter, layer: int) -> TransferId:
        """What lies beside the bytes that were asked for. As the connector numbers it."""
        ours, _ = self._real.layouts(writer.peer)
        spans = [beside(span, ours.layer_bytes) for span in writer.spans]
        return self._real.writer(writer.peer, spans).write(layer)

    def poll(self) -> list[TransferEvent]:
        REPEATER.look()
        if self._stalled and asked() not in ("stall", "half", "half_pool", "keep"):
            stalled, self._stalled = self._stalled, []
            for entry in stalled:
                self._names[entry.begin()] = entry.transfer
        gone, self._gone = self._gone, []
        return gone + [self._ended(event) for event in self._real.poll()]

    def disconnect(self, peer: PeerId) -> None:
        self._gone += [
            TransferEvent(entry.transfer, "failed", 0, "gone")
            for entry in self._stalled
            if entry.peer == peer
        ]
        self._stalled = [entry for entry in self._stalled if entry.peer != peer]
        self._real.disconnect(peer)

    def _begin(self) -> TransferId:
        self._last += 1
        return TransferId(self._last)

    def _ended(self, event: TransferEvent) -> TransferEvent:
        transfer = self._names.pop(event.transfer)
        if event.transfer in self._failed:
            self._failed.remove(event.transfer)
            return TransferEvent(transfer, "failed", 0, "a test said so")
        return replace(event, transfer=transfer)


def beside(span: Span, layer_bytes: int) -> Span:
    """As much, from the next token of the source on or, at the layer's end, from the one before."""
    fits = span.source + span.nbytes + TOKEN_BYTES <= layer_bytes
    return replace(span, source=span.source + (TOKEN_BYTES if fits else -TOKEN_BYTES))


def faulty(make: Callable[..., Connector]) -> Callable[..., FaultyConnector]:
    """A connector between hosts behaves as between them: with checksums."""

    def made(*networks: NetworkOptions) -> FaultyConnector:
        return FaultyConnector(make(*(replace(one, checksums=True) for one in networks)))

    return made


if __name__ == "__main__":
    registry.load = lambda target: faulty(load(target))  # type: ignore[attr-defined]
    Outbox.send = lambda *args: REPEATER.send(*args)  # type: ignore[method-assign]
    sys.exit(main())
