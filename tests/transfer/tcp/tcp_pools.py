"""Pools for tests of connector tcp, and an owner of one that does what a script says."""

import ctypes
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgspec
from xxhash import xxh3_64_digest

from splitserve.protocol.handshake import NONCE_BYTES, ListenerSide
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import PeerId, TransferEvent, TransferId
from splitserve.transfer.connectors.tcp import TcpConnector
from splitserve.transfer.options import NetworkOptions
from splitserve.transfer.plan import Span
from splitserve.transfer.tcp.frames import HEADER_BYTES, Header, Piece, parse_header, parse_table
from splitserve.transfer.tcp.payload import SUM_BYTES

LAYOUT = KVLayout("bfloat16", 3, 2, 8, 4, 16, 2)
LAYER = LAYOUT.layer_bytes
ALL = [Span(0, 0, LAYER)]
STALL_S = 0.3
"""For tests of what stalls."""

PATIENT_S = 20.0
"""For tests of what does not, however busy the machine is."""


class HostMemory:
    """A pool of ``fill`` bytes."""

    def __init__(self, layout: KVLayout = LAYOUT, fill: int = 0) -> None:
        self.bytes = bytearray([fill]) * layout.pool_bytes
        self._view = (ctypes.c_char * layout.pool_bytes).from_buffer(self.bytes)
        self.region = MemoryRegion(ctypes.addressof(self._view), layout.pool_bytes)


def ends(connector: TcpConnector, transfers: Sequence[TransferId]) -> list[TransferEvent]:
    """In the order of ``transfers``, each told once."""
    told: dict[TransferId, TransferEvent] = {}
    while len(told) < len(transfers):
        for event in connector.poll():
            assert event.transfer not in told
            told[event.transfer] = event
    return [told[transfer] for transfer in transfers]


def summed(payload: bytes, told: bytes | None = None) -> bytes:
    """With the checksum of ``told`` behind it, or its own."""
    return payload + xxh3_64_digest(payload if told is None else told)


def kv_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kv-")]


@dataclass
class Asked:
    """One frame that a scripted owner was sent, without its payload."""

    header: Header
    pieces: list[Piece]


class Stream:
    """One stream as its owner sees it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def take(self, nbytes: int) -> bytes:
        """Raises ConnectionError at the end of the stream."""
        data = b""
        while len(data) < nbytes:
            more = self.sock.recv(nbytes - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data

    def next(self) -> Asked:
        header = parse_header(self.take(HEADER_BYTES))
        return Asked(header, parse_table(header, self.take(header.table_bytes), 1 << 30))

    def put(self) -> tuple[Asked, bytes]:
        """A write and its payload, which has its checksum behind it."""
        asked = self.next()
        payload = self.take(asked.header.nbytes)
        assert summed(payload) == payload + self.take(SUM_BYTES)
        return asked, payload

    def until_closed(self) -> int:
        """How many bytes the peer sends before it closes or resets the stream."""
        got = 0
        with suppress(ConnectionError):
            while more := self.sock.recv(1 << 16):
                got += len(more)
        return got


class ScriptedOwner:
    """Each stream that is opened to it runs ``script`` once the two have proven themselves."""

    def __init__(self, script: Callable[[Stream], None], stall_s: float = STALL_S) -> None:
        self.stall_s = stall_s
        self.token = secrets.token_bytes(NONCE_BYTES)
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._socks: list[socket.socket] = []
        self._errors: list[BaseException] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def describe(self) -> bytes:
        pool = {
            "host": "127.0.0.1",
            "port": self._listener.getsockname()[1],
            "token": self.token,
            "stall_s": self.stall_s,
            "nbytes": LAYOUT.pool_bytes,
            "layout": LAYOUT,
        }
        return msgspec.msgpack.encode(pool)

    def close(self) -> None:
        """Raises what a script raised."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for sock in self._socks:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for error in self._errors:
            raise error

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                thread = threading.Thread(target=self._run, args=(sock,))
                self._socks.append(sock)
                self._threads.append(thread)
                thread.start()

    def _run(self, sock: socket.socket) -> None:
        try:
            with sock:
                side = ListenerSide(self.token, secrets.token_bytes(NONCE_BYTES))
                sock.sendall(side.start())
                while not side.done:
                    sock.sendall(side.feed(sock.recv(256)))
                self._script(Stream(sock))
        except ConnectionError:
            pass
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self._errors.append(error)


@contextmanager
def connected(
    script: Callable[[Stream], None], stall_s: float = STALL_S
) -> Iterator[tuple[TcpConnector, PeerId]]:
    """A connector over a pool of ones and its peer, which does what ``script`` says."""
    owner = ScriptedOwner(script, stall_s)
    pool = HostMemory(fill=1)
    connector = TcpConnector(NetworkOptions(streams=1, stall_s=stall_s))
    connector.open(pool.region, LAYOUT)
    try:
        yield connector, connector.connect(owner.describe())
    finally:
        connector.close()
        owner.close()
        assert kv_threads() == []
        del pool
