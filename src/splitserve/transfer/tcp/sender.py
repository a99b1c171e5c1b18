"""A peer as we reach it: frames that wait, and one thread per stream that takes from them."""

import logging
import secrets
import socket
import threading
from collections import deque
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

from splitserve.clock import monotonic
from splitserve.errors import TransferFailed
from splitserve.protocol.gate import Tls
from splitserve.protocol.handshake import NONCE_BYTES, OpenerSide, Refused
from splitserve.transfer.tcp.batches import Batch
from splitserve.transfer.tcp.frames import (
    HEADER_BYTES,
    FrameError,
    Header,
    Kind,
    encode,
    parse_header,
    parse_table,
)
from splitserve.transfer.tcp.payload import receive_payload, send_frame
from splitserve.transfer.tcp.wire import Wire

log = logging.getLogger(__name__)

WINDOW: Final = 4
"""Frames of one stream that wait for their answer: what may be under way to a slow peer."""

RETRY_S: Final = 1.0
"""After a stream has failed, what comes meanwhile fails at once."""

_PROOF_LIMIT: Final = 256


@dataclass(frozen=True, slots=True)
class Reach:
    """How to open a stream to a peer. ``token`` is its pool's."""

    host: str
    port: int
    token: bytes
    stall_s: float
    checksums: bool
    tls: Tls | None

    def open(self) -> Wire:
        """Raises TransferFailed."""
        try:
            return self._open()
        except (OSError, Refused, ValueError) as error:
            # ValueError: what the peer says is its host cannot be one.
            raise TransferFailed(
                f"no stream to the peer's KV pool at {self.host}:{self.port}: {error}"
            ) from error

    def _open(self) -> Wire:
        sock = socket.create_connection((self.host, self.port), self.stall_s)
        try:
            if self.tls is not None:
                sock = self.tls.opening.wrap_socket(sock, server_hostname=self.host)
            wire = Wire(sock, self.stall_s)
            side = OpenerSide(self.token, secrets.token_bytes(NONCE_BYTES))
            while not side.done:
                answer = side.feed(wire.read_some(_PROOF_LIMIT))
                if answer:
                    wire.send([answer])
        except BaseException:
            sock.close()
            raise
        return wire


class Sender:
    """One connected peer. ``submit`` never waits; what it is given waits in a queue, as references
    to memory that the transfers keep as it is."""

    def __init__(self, reach: Reach, streams: int, pool: memoryview) -> None:
        """Raises TransferFailed unless every stream can be opened."""
        self._queue: SimpleQueue[Batch | None] = SimpleQueue()
        self._leaving = threading.Event()
        wires: list[Wire] = []
        try:
            for _ in range(streams):
                wires.append(reach.open())
        except TransferFailed:
            for wire in wires:
                wire.close()
            raise
        self._threads = [
            threading.Thread(
                target=_Stream(self._queue, self._leaving, wire, reach, pool).run,
                name=f"kv-to-{reach.host}:{reach.port}",
                daemon=True,
            )
            for wire in wires
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, batch: Batch) -> None:
        self._queue.put(batch)

    def leave(self) -> None:
        """Ends with what is under way; what waits fails. Where the peer hangs, that takes up to
        twice its stall time. All transfers have ended when this returns."""
        self._leaving.set()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()


class _Stream:
    """One thread's work. Of its frames up to WINDOW have been sent and not been answered; ``held``
    waits until those that go the other way have been."""

    def __init__(
        self,
        queue: "SimpleQueue[Batch | None]",
        leaving: threading.Event,
        wire: Wire,
        reach: Reach,
        pool: memoryview,
    ) -> None:
        self._queue = queue
        self._leaving = leaving
        self._wire: Wire | None = wire
        self._reopen = reach.open
        self._checksums = reach.checksums
        self._pool = pool
        self._unanswered: deque[Batch] = deque()
        self._held: Batch | None = None
        self._last = False
        self._number = 0
        self._closed_until = 0.0
        self._header = bytearray(HEADER_BYTES)

    def run(self) -> None:
        while self._unanswered or not self._last:
            try:
                self._turn()
            except (OSError, FrameError, TransferFailed) as error:
                self._fail(error)
        if self._wire is not None:
            self._wire.close()

    def _turn(self) -> None:
        if self._must_answer():
            self._take_answer()
            return
        batch, self._held = self._held or self._queue.get(), None
        if batch is None:
            self._last = True
        elif self._leaving.is_set():
            batch.started.settle(0, "the peer was disconnected")
        elif batch.started.error:
            batch.started.settle(0)
        elif self._unanswered and self._unanswered[0].kind != batch.kind:
            self._held = batch
        else:
            self._send(batch)

    def _must_answer(self) -> bool:
        """Whether to wait for an answer rather than for something to send."""
        if not self._unanswered:
            return False
        full = len(self._unanswered) >= WINDOW
        return full or self._last or self._held is not None or self._queue.empty()

    def _send(self, batch: Batch) -> None:
        self._number += 1
        batch.number = self._number
        self._unanswered.append(batch)
        wire = self._open()
        head = encode(batch.kind, batch.number, batch.pieces(), batch.nbytes, self._checksums)
        if batch.kind is Kind.GET:
            wire.send([head])
        else:
            send_frame(wire, head, batch.views(self._pool), self._checksums)

    def _take_answer(self) -> None:
        """Of the oldest frame. One that was damaged goes out once more."""
        batch = self._unanswered[0]
        if not self._arrived(batch):
            if batch.again:
                raise FrameError("a frame was damaged twice on its way")
            self._unanswered.popleft()
            batch.again = True
            self._send(batch)
            return
        self._unanswered.popleft()
        batch.started.settle(batch.nbytes)

    def _arrived(self, batch: Batch) -> bool:
        wire = self._open()
        wire.receive([memoryview(self._header)])
        header = parse_header(self._header)
        parse_table(header, b"", 0)
        if header.number != batch.number or header.pieces:
            raise FrameError("the peer answers what it was not asked")
        if batch.kind is Kind.GET:
            return self._receive(wire, header, batch)
        if header.kind not in (Kind.OK, Kind.BAD):
            raise FrameError("the peer answers a write with something else")
        return header.kind is Kind.OK

    def _receive(self, wire: Wire, header: Header, batch: Batch) -> bool:
        asked = batch.nbytes, self._checksums
        if header.kind is not Kind.DATA or (header.nbytes, header.summed) != asked:
            raise FrameError("the peer answers a read with something else")
        return receive_payload(wire, batch.views(self._pool), self._checksums)

    def _open(self) -> Wire:
        if self._wire is None:
            if monotonic() < self._closed_until:
                raise TransferFailed("the stream to the peer failed a moment ago")
            self._wire = self._reopen()
        return self._wire

    def _fail(self, error: Exception) -> None:
        """What was under way has failed, once nothing of it can arrive any more."""
        if self._wire is not None:
            log.warning("a stream of KV failed: %s", error)
            self._wire.finish()
            self._wire = None
            self._closed_until = monotonic() + RETRY_S
        while self._unanswered:
            self._unanswered.popleft().started.settle(0, f"the stream to the peer failed: {error}")
