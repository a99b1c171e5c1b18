"""Stands before one worker's socket: sees every frame, and holds, swallows or cuts what it is told.

So a test can keep a request in one state as long as it likes, and break a connection in the way no
local socket breaks by itself: both ends stay open and nothing passes.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from splitserve.protocol.codec import FrameDecoder, Message, encode
from splitserve.protocol.control import Welcome
from splitserve.protocol.telemetry import Load


@dataclass(frozen=True)
class Passed:
    """One frame between the process ``peer`` (its pid) and the worker."""

    peer: int
    to_worker: bool
    message: Message


Match = Callable[[Passed], bool]


@dataclass
class _Line:
    """One connection through the relay. ``held`` by direction, to the worker and from it."""

    peer: int
    outer: socket.socket
    inner: socket.socket
    silent: bool = False
    pumps: int = 2
    held: dict[bool, list[Message]] = field(default_factory=lambda: {True: [], False: []})

    def end(self) -> None:
        for sock in (self.outer, self.inner):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.outer.close()
        self.inner.close()

    def target(self, to_worker: bool) -> socket.socket:
        return self.inner if to_worker else self.outer


class Relay:
    """Listens at ``public`` for the worker that listens at ``private``, and calls it that."""

    def __init__(self, public: Path, private: Path) -> None:
        self._public = public
        self._private = private
        self._news = threading.Condition()
        self._seen: list[Passed] = []
        self._holds: list[Match] = []
        self._lines: list[_Line] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(public))
        self._listener.listen()
        self._start(self._accept)

    def hold(self, match: Match) -> None:
        """From now on keeps back the frames that match, and what follows them but Load."""
        with self._news:
            self._holds.append(match)

    def release(self) -> None:
        """Nothing is held any more; what was held leaves now."""
        with self._news:
            self._holds.clear()
            for line in self._lines:
                for to_worker, messages in line.held.items():
                    for message in messages:
                        self._forward(line, to_worker, message)
                    messages.clear()

    def silence(self, peer: int) -> None:
        """Half-open: what ``peer`` and the worker have open stays open, and nothing passes."""
        with self._news:
            for line in self._lines:
                line.silent = line.silent or line.peer == peer

    def mend(self) -> None:
        """Cuts what was silent, so that both ends learn of it; forgets what was seen."""
        self.release()
        with self._news:
            for line in self._lines:
                if line.silent:
                    line.end()
            self._seen.clear()

    def saw(self, match: Match) -> bool:
        with self._news:
            return any(map(match, self._seen))

    def wait(self, match: Match, within_s: float = 10) -> None:
        """Until such a frame has come by, held or not."""
        with self._news:
            found = self._news.wait_for(lambda: any(map(match, self._seen)), within_s)
            assert found, f"not seen at {self._public.name}: {[p.message for p in self._seen[-5:]]}"

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._news:
            for line in self._lines:
                line.end()
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
            inner = socket.socket(socket.AF_UNIX)
            try:
                inner.connect(str(self._private))
            except OSError:  # the worker is dead: so is its address
                outer.close()
                inner.close()
                continue
            line = _Line(_pid_of(outer), outer, inner)
            with self._news:
                self._lines.append(line)
            for to_worker in (True, False):
                self._start(self._pump, line, to_worker)

    def _pump(self, line: _Line, to_worker: bool) -> None:
        decoder = FrameDecoder()
        source = line.target(not to_worker)
        with suppress(OSError):
            while data := source.recv(1 << 16):
                for message in decoder.feed(data):
                    self._take(line, to_worker, message)
        with self._news:
            if not line.silent:
                line.end()
            line.pumps -= 1
            if not line.pumps:
                line.close()
                self._lines.remove(line)

    def _take(self, line: _Line, to_worker: bool, message: Message) -> None:
        passed = Passed(line.peer, to_worker, message)
        held = line.held[to_worker]
        with self._news:
            if isinstance(message, Load):
                self._forward(line, to_worker, message)
                return
            self._seen.append(passed)
            self._news.notify_all()
            if held or any(match(passed) for match in self._holds):
                held.append(message)
            else:
                self._forward(line, to_worker, message)

    def _forward(self, line: _Line, to_worker: bool, message: Message) -> None:
        if line.silent:
            return
        if isinstance(message, Welcome):
            message = msgspec.structs.replace(message, address=f"unix:{self._public}")
        with suppress(OSError):
            line.target(to_worker).sendall(encode(message))


def _pid_of(sock: socket.socket) -> int:
    size = struct.calcsize("3i")
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[0])
