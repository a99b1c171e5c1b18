"""The pool's own side: serves peers that write into the pool and read from it."""

import contextlib
import logging
import secrets
import socket
import threading
from typing import Final

from splitserve.errors import ConfigError
from splitserve.protocol.handshake import NONCE_BYTES, ListenerSide, Refused
from splitserve.transfer.options import NetworkOptions
from splitserve.transfer.tcp.frames import (
    HEADER_BYTES,
    FrameError,
    Header,
    Kind,
    Piece,
    encode,
    parse_header,
    parse_table,
)
from splitserve.transfer.tcp.payload import receive_payload, send_frame
from splitserve.transfer.tcp.wire import Wire

log = logging.getLogger(__name__)

MAX_UNPROVEN: Final = 64
"""Connections that may be proving themselves at once; more are closed as they come."""

_PROOF_LIMIT: Final = 256


class Owner:
    """Listens from the start until ``close``. A thread accepts, and each stream has its own.

    A stream must prove that it knows ``token``, which is drawn for this pool and told in its
    description alone. That goes over a link between workers, which has proven the shared secret of
    all processes (and is under TLS, where that is asked for): so who knows the token is a peer of
    ours. It is worth nothing for another pool or after a restart.
    """

    def __init__(self, options: NetworkOptions, pool: memoryview) -> None:
        """Raises ConfigError for an address that cannot be listened on."""
        self.token = secrets.token_bytes(NONCE_BYTES)
        self._options = options
        self._pool = pool
        self._lock = threading.Lock()
        self._unproven = 0
        self._closed = False
        self._serving: dict[threading.Thread, socket.socket] = {}
        self._listener = _listen(options)
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, name="kv-accept", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """No byte of the pool is touched after this returns."""
        with self._lock:
            self._closed = True
            serving = dict(self._serving)
        # Closing alone does not wake a thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for sock in serving.values():
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in serving:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                log.exception("a stream of KV could not be accepted")
                continue
            self._start(sock)

    def _start(self, sock: socket.socket) -> None:
        thread = threading.Thread(target=self._serve, args=(sock,), name="kv-from", daemon=True)
        with self._lock:
            if self._closed or self._unproven == MAX_UNPROVEN:
                sock.close()
                return
            self._unproven += 1
            self._serving[thread] = sock
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            try:
                sock = self._secured(sock)
                self._prove(sock)
            finally:
                with self._lock:
                    self._unproven -= 1
            stream = _OwnStream(Wire(sock, self._options.stall_s), self._pool)
            while True:
                stream.serve_one()
        except (Refused, FrameError) as error:
            log.warning("a stream of KV was closed: %s", error)
        except OSError as error:
            log.debug("a stream of KV ended: %s", error)
        finally:
            sock.close()
            with self._lock:
                del self._serving[threading.current_thread()]

    def _secured(self, sock: socket.socket) -> socket.socket:
        """Under TLS where that is asked for; known to ``close``."""
        sock.settimeout(self._options.stall_s)
        if self._options.tls is None:
            return sock
        secured = self._options.tls.listening.wrap_socket(sock, server_side=True)
        with self._lock:
            self._serving[threading.current_thread()] = secured
            if self._closed:
                secured.close()
        return secured

    def _prove(self, sock: socket.socket) -> None:
        """Raises Refused."""
        wire = Wire(sock, self._options.stall_s)
        side = ListenerSide(self.token, secrets.token_bytes(NONCE_BYTES))
        wire.send([side.start()])
        while not side.done:
            answer = side.feed(wire.read_some(_PROOF_LIMIT))
            if answer:
                wire.send([answer])


class _OwnStream:
    """What one stream's peer asks, in its order."""

    def __init__(self, wire: Wire, pool: memoryview) -> None:
        self._wire = wire
        self._pool = pool
        self._header = bytearray(HEADER_BYTES)

    def serve_one(self) -> None:
        """Raises FrameError or OSError: the stream is of no use any more."""
        self._wire.receive_next(memoryview(self._header))
        header = parse_header(self._header)
        table = bytearray(header.table_bytes)
        self._wire.receive([memoryview(table)])
        pieces = parse_table(header, table, len(self._pool))
        if not pieces:
            raise FrameError("a frame asks for nothing")
        if header.kind is Kind.PUT:
            self._put(header, pieces)
        elif header.kind is Kind.GET:
            self._get(header, pieces)
        else:
            raise FrameError(f"a peer of ours sends no {header.kind.name}")

    def _put(self, header: Header, pieces: list[Piece]) -> None:
        whole = receive_payload(self._wire, self._views(pieces), header.summed)
        self._wire.send([encode(Kind.OK if whole else Kind.BAD, header.number)])

    def _get(self, header: Header, pieces: list[Piece]) -> None:
        head = encode(Kind.DATA, header.number, (), header.nbytes, header.summed)
        send_frame(self._wire, head, self._views(pieces), header.summed)

    def _views(self, pieces: list[Piece]) -> list[memoryview]:
        return [self._pool[offset : offset + size] for offset, size in pieces]


def _listen(options: NetworkOptions) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"connector tcp cannot listen at {options.host}: {error}") from error
    try:
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"connector tcp cannot listen at {options.host}:{options.port}: {error.strerror}"
        ) from error
    return listener
