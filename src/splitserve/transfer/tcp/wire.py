"""A connected socket that fills and sends pieces of memory, and notices that nothing moves."""

import contextlib
import socket
import ssl
import struct
from collections.abc import Sequence
from typing import Final, TypeVar

from splitserve.clock import monotonic

_Piece = TypeVar("_Piece", memoryview, bytes | memoryview)

_SCRATCH_BYTES: Final = 1 << 16
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_TOO_LONG: Final = 1.5
"""A wait ends after ``stall_s`` and a little; much more than that, and the process was stopped."""


class Wire:
    """All calls raise OSError once the connection is of no use, TimeoutError when nothing moved for
    ``stall_s``. One thread uses it.

    The sender has given a frame up by the time that a process which was stopped goes on. So what
    arrives after a wait that took longer than it may is not taken.
    """

    def __init__(self, sock: socket.socket, stall_s: float) -> None:
        self._sock = sock
        self._stall_s = stall_s
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self._used = monotonic()
        if self._is_tls:
            sock.settimeout(stall_s)
        else:
            _limit_calls(sock, stall_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, pieces: Sequence[bytes | memoryview]) -> None:
        """All of them, without putting them together first."""
        left = list(pieces)
        while left:
            self._used = monotonic()
            try:
                # TLS takes one piece at a time.
                sent = self._sock.send(left[0]) if self._is_tls else self._sock.sendmsg(left)
            except BlockingIOError as error:
                raise _timed_out() from error
            self._check_wait()
            left = _after(left, sent)

    def receive(self, pieces: Sequence[memoryview]) -> None:
        """Fills all of them."""
        left = [piece for piece in pieces if piece]
        while left:
            self._used = monotonic()
            got = self._receive(left)
            self._check_wait()
            left = _after(left, got)

    def receive_next(self, piece: memoryview) -> None:
        """Fills it; may wait without end for its first byte."""
        while True:
            # What lies there already may have come while this process was stopped.
            self._check_wait()
            try:
                got = self._receive([piece])
                break
            except TimeoutError:
                self._used = monotonic()
        self._check_wait()
        self.receive([piece[got:]])

    def read_some(self, limit: int) -> bytes:
        """One byte at least and ``limit`` at most."""
        try:
            heard = self._sock.recv(limit)
        except BlockingIOError as error:
            raise _timed_out() from error
        if not heard:
            raise ConnectionResetError("the peer closed the connection")
        return heard

    def finish(self) -> None:
        """Sends no more and waits until the peer has closed its end, as it does once it has read
        all: then nothing of ours is being written there any more. After ``stall_s`` without a byte
        it throws away what was not sent yet. Never raises."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
            while self._sock.recv(_SCRATCH_BYTES):
                pass
        except OSError:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.close()

    def _receive(self, pieces: list[memoryview]) -> int:
        try:
            if self._is_tls:
                got = self._sock.recv_into(pieces[0])
            else:
                got = self._sock.recvmsg_into(pieces, 0, socket.MSG_WAITALL)[0]
        except BlockingIOError as error:
            raise _timed_out() from error
        if not got:
            raise ConnectionResetError("the peer closed the connection")
        return got

    def _check_wait(self) -> None:
        now = monotonic()
        if now - self._used > _TOO_LONG * self._stall_s:
            raise _timed_out()
        self._used = now

    def close(self) -> None:
        self._sock.close()


def _limit_calls(sock: socket.socket, stall_s: float) -> None:
    """Has the kernel end calls after ``stall_s``, so that one call moves a whole frame: Python's
    own timeouts wake the thread, and take the interpreter, for each part of it that comes."""
    sock.settimeout(None)
    seconds, rest = divmod(stall_s, 1.0)
    limit = struct.pack("ll", int(seconds), int(rest * 1e6))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, limit)


def _timed_out() -> TimeoutError:
    """Of BlockingIOError: that is how the kernel says that time is up."""
    return TimeoutError("timed out")


def _after(pieces: list[_Piece], nbytes: int) -> list[_Piece]:
    """What is left of ``pieces`` behind the first ``nbytes``."""
    if nbytes == sum(map(len, pieces)):
        return []
    for index, piece in enumerate(pieces):
        if nbytes < len(piece):
            left = pieces[index:]
            left[0] = piece[nbytes:]
            return left
        nbytes -= len(piece)
    return []
