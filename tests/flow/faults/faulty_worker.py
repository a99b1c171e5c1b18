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
from dataclasses import replace
from pathlib import Path
from typing import Any

from splitserve.cli.main import main
from splitserve.protocol.codec import Message
from splitserve.protocol.handoff import KVReady
from splitserve.protocol.memory import Copy
from splitserve.roles.loop import Outbox
from splitserve.roles.port import ConnId
from splitserve.transfer.base import PeerId, TransferEvent, TransferId
from splitserve.transfer.connectors.shm import ShmConnector
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


class FaultyConnector(ShmConnector):
    """Shared memory that does what the file says."""

    def __init__(self) -> None:
        super().__init__()
        self._stalled: list[tuple[TransferId, PeerId, Sequence[Copy]]] = []
        self._failed: set[TransferId] = set()
        self._renamed: dict[TransferId, TransferId] = {}

    def write(self, peer: PeerId, copies: Sequence[Copy]) -> TransferId:
        fault = asked()
        if fault == "stall":
            transfer = TransferId(next(self._ids))
            self._stalled.append((transfer, peer, copies))
            return transfer
        transfer = super().write(peer, copies)
        if fault == "fail":
            self._failed.add(transfer)
        elif fault == "corrupt":
            self._spoil(peer, copies)
        return transfer

    def poll(self) -> list[TransferEvent]:
        REPEATER.look()
        if self._stalled and asked() != "stall":
            stalled, self._stalled = self._stalled, []
            for transfer, peer, copies in stalled:
                self._renamed[super().write(peer, copies)] = transfer
        return [self._ended(event) for event in super().poll()]

    def disconnect(self, peer: PeerId) -> None:
        gone = [transfer for transfer, its_peer, _ in self._stalled if its_peer == peer]
        self._stalled = [entry for entry in self._stalled if entry[1] != peer]
        self._events += [TransferEvent(transfer, "failed", 0, "gone") for transfer in gone]
        super().disconnect(peer)

    def _ended(self, event: TransferEvent) -> TransferEvent:
        if event.transfer in self._failed:
            self._failed.remove(event.transfer)
            return TransferEvent(event.transfer, "failed", 0, "a test said so")
        return replace(event, transfer=self._renamed.pop(event.transfer, event.transfer))

    def _spoil(self, peer: PeerId, copies: Sequence[Copy]) -> None:
        target: Any = self._peers[peer]
        for copy in copies:
            ctypes.memset(target.address + copy.target, 0x5A, copy.nbytes)


if __name__ == "__main__":
    CONNECTORS["shm"] = "__main__:FaultyConnector"
    Outbox.send = lambda *args: REPEATER.send(*args)  # type: ignore[method-assign]
    sys.exit(main())
