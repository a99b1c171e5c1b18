"""Stands before the port of a worker's KV pool: passes on what connector tcp sends, damages frames,
stops in the middle of one, and cuts.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from faults.relay import Relay

from splitserve.protocol.codec import Message
from splitserve.protocol.handoff import Attached
from splitserve.transfer.tcp.frames import HEADER_BYTES, MAGIC, Kind, parse_header


@dataclass
class _Line:
    """One connection through the wire."""

    outer: socket.socket
    inner: socket.socket
    pumps: int = 2

    def end(self) -> None:
        for each in (self.outer, self.inner):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class Wire:
    """One port for all lives of a worker: what is opened leads to the newest."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._target = 0
        self._to_damage = 0
        self._room: int | None = None
        self._waiting = 0
        self._lines: list[_Line] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._start(self._accept)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def lead_to(self, port: int) -> None:
        self._target = port

    def damage(self, frames: int) -> None:
        """Of the next ones, in either direction, a byte of the payload is changed."""
        with self._news:
            self._to_damage = frames

    def to_damage(self) -> int:
        """How many of them are still to come."""
        with self._news:
            return self._to_damage

    def stop_after(self, nbytes: int) -> None:
        """So much still passes, in both directions together, and the rest waits."""
        with self._news:
            self._room = nbytes

    def has_stopped(self) -> bool:
        """Whether something waits."""
        with self._news:
            return self._waiting > 0

    def cut(self) -> None:
        """All connections; what waits is lost."""
        with self._news:
            for line in self._lines:
                line.end()
        self.mend()

    def mend(self) -> None:
        """What waits passes now, and nothing is done to what comes."""
        with self._news:
            self._to_damage = 0
            self._room = None
            self._news.notify_all()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                outer, _ = self._listener.accept()
            except OSError:
                return
            try:
                inner = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # the worker is dead
                outer.close()
                continue
            line = _Line(outer, inner)
            with self._news:
                self._lines.append(line)
            self._start(self._pump, line, outer, inner)
            self._start(self._pump, line, inner, outer)

    def _pump(self, line: _Line, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                for piece in self._passing(self._changed(data)):
                    target.sendall(piece)
        with self._news:
            line.end()
            line.pumps -= 1
            if not line.pumps:
                line.outer.close()
                line.inner.close()
                self._lines.remove(line)

    def _changed(self, data: bytes) -> bytes:
        with self._news:
            at = payload_at(data) if self._to_damage else None
            if at is None:
                return data
            self._to_damage -= 1
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    def _passing(self, data: bytes) -> Iterator[bytes]:
        """What may pass at once, and the rest once it may."""
        with self._news:
            room = len(data) if self._room is None else min(self._room, len(data))
            self._room = None if self._room is None else self._room - room
        yield data[:room]
        if room < len(data):
            with self._news:
                self._waiting += 1
                self._news.wait_for(lambda: self._room is None)
                self._waiting -= 1
            yield data[room:]


def payload_at(data: bytes) -> int | None:
    """Where the payload of the first frame that begins here begins, if it does."""
    start = data.find(MAGIC)
    if start < 0 or len(data) < start + HEADER_BYTES:
        return None
    header = parse_header(data[start : start + HEADER_BYTES])
    at = start + HEADER_BYTES + header.table_bytes
    return at if header.kind in (Kind.PUT, Kind.DATA) and at < len(data) else None


class WiredRelay(Relay):
    """Whoever attaches to the worker is told that its KV pool is reached through ``wire``."""

    def __init__(self, public: Path, private: Path) -> None:
        self.wire = Wire()
        super().__init__(public, private)

    def close(self) -> None:
        super().close()
        self.wire.close()

    def _forward(self, line: Any, to_worker: bool, message: Message) -> None:
        if isinstance(message, Attached):
            (only,) = msgspec.msgpack.decode(message.peer)
            pool = msgspec.msgpack.decode(only)
            self.wire.lead_to(pool["port"])
            led = msgspec.msgpack.encode(pool | {"port": self.wire.port})
            message = msgspec.structs.replace(message, peer=msgspec.msgpack.encode([led]))
        super()._forward(line, to_worker, message)
