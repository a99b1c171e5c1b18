"""A worker whose KV writes go wrong when a file says so. Run as ``splitserve`` is run.

The file named by the environment variable FAULTS holds one word:

    stall      writes start and do not end; they land once the word is gone
    fail       the connector says that writes failed
    corrupt    writes land with other bytes, and the connector knows nothing of it
    duplicate  the last KVReady is sent again, and every later one twice
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from splitserve.cli.main import main
from splitserve.protocol.codec import Message
from splitserve.protocol.handoff import KVReady
from splitserve.roles.loop import Outbox
from splitserve.roles.port import ConnId
from splitserve.transfer.base import LayerWriter, PeerId, TransferEvent, TransferId
from splitserve.transfer.connectors.shm import ShmConnector
from splitserve.transfer.plan import Span
from splitserve.transfer.registry import CONNECTORS

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
    transfer: TransferId
    peer: PeerId
    writer: LayerWriter
    layer: int


@dataclass
class FaultyWriter:
    """One set of spans of a FaultyConnector."""

    connector: "FaultyConnector"
    peer: PeerId
    spans: Sequence[Span]
    real: LayerWriter

    def write(self, layer: int) -> TransferId:
        return self.connector.start(self, layer)


class FaultyConnector(ShmConnector):
    """Shared memory that does what the file says."""

    def __init__(self) -> None:
        super().__init__()
        self._stalled: list[Stalled] = []
        self._gone: list[TransferEvent] = []
        self._failed: set[TransferId] = set()
        self._renamed: dict[TransferId, TransferId] = {}

    def writer(self, peer: PeerId, spans: Sequence[Span]) -> LayerWriter:
        return FaultyWriter(self, peer, spans, super().writer(peer, spans))

    def start(self, writer: FaultyWriter, layer: int) -> TransferId:
        fault = asked()
        if fault == "stall":
            transfer = self._ends.begin()
            self._stalled.append(Stalled(transfer, writer.peer, writer.real, layer))
            return transfer
        transfer = writer.real.write(layer)
        if fault == "fail":
            self._failed.add(transfer)
        elif fault == "corrupt":
            self._spoil(writer, layer)
        return transfer

    def poll(self) -> list[TransferEvent]:
        REPEATER.look()
        if self._stalled and asked() != "stall":
            stalled, self._stalled = self._stalled, []
            for entry in stalled:
                self._renamed[entry.writer.write(entry.layer)] = entry.transfer
        gone, self._gone = self._gone, []
        return gone + [self._ended(event) for event in super().poll()]

    def disconnect(self, peer: PeerId) -> None:
        self._gone += [
            TransferEvent(entry.transfer, "failed", 0, "gone")
            for entry in self._stalled
            if entry.peer == peer
        ]
        self._stalled = [entry for entry in self._stalled if entry.peer != peer]
        super().disconnect(peer)

    def _ended(self, event: TransferEvent) -> TransferEvent:
        if event.transfer in self._failed:
            self._failed.remove(event.transfer)
            return TransferEvent(event.transfer, "failed", 0, "a test said so")
        return replace(event, transfer=self._renamed.pop(event.transfer, event.transfer))

    def _spoil(self, writer: FaultyWriter, layer: int) -> None:
        target: Any = self._peers[writer.peer].host()
        start = target.address + layer * target.layout.layer_bytes
        for span in writer.spans:
            ctypes.memset(start + span.target, 0x5A, span.nbytes)


if __name__ == "__main__":
    CONNECTORS["shm"] = "__main__:FaultyConnector"
    Outbox.send = lambda *args: REPEATER.send(*args)  # type: ignore[method-assign]
    sys.exit(main())
