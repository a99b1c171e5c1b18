"""How fast a plain socket moves bytes into another process over loopback: what connector tcp is
measured against.

One connection, from shared memory into shared memory, as pools are. The sender gives the kernel
large pieces, the receiver has it fill memory directly. Neither looks at the bytes.
"""

import mmap
import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final

_PIECE: Final = 1 << 20


class PlainSocket:
    """A connection to a process that takes ``nbytes`` at a time and says when it has them."""

    def __init__(self, sock: socket.socket, nbytes: int) -> None:
        self._sock = sock
        self._memory = _memory(nbytes)

    def send_s(self) -> float:
        """Seconds until all of them are there."""
        start = time.perf_counter()
        for offset in range(0, len(self._memory), _PIECE):
            self._sock.sendall(self._memory[offset : offset + _PIECE])
        self._sock.recv_into(bytearray(1))
        return time.perf_counter() - start


@contextmanager
def plain_socket(nbytes: int) -> Iterator[PlainSocket]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_receive, args=(nbytes, theirs))
    process.start()
    theirs.close()
    try:
        port = int.from_bytes(ours.recv_bytes(), "little")
        with socket.create_connection(("127.0.0.1", port)) as sock:
            yield PlainSocket(sock, nbytes)
    finally:
        ours.close()
        process.join()


def _memory(nbytes: int) -> memoryview:
    """Every page of it touched."""
    shared = mmap.mmap(-1, nbytes)
    shared[:] = b"\1" * nbytes
    return memoryview(shared)


def _receive(nbytes: int, pipe: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send_bytes(listener.getsockname()[1].to_bytes(2, "little"))
        sock, _ = listener.accept()
    memory = _memory(nbytes)
    got = 0
    with sock:
        while more := sock.recv_into(memory[got : got + _PIECE]):
            got += more
            if got == nbytes:
                sock.sendall(b"!")
                got = 0
