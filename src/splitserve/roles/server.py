"""The worker's sockets: listens, links to other workers, sends liveness by time.

Runs on the main thread's event loop; everything that decides runs on the engine's thread.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from splitserve.clock import Clock
from splitserve.errors import ConfigError
from splitserve.ids import WorkerId
from splitserve.protocol.address import UnixAddress, parse_address
from splitserve.protocol.codec import Message, encode
from splitserve.protocol.connection import Connection, connect
from splitserve.protocol.control import DRAIN_GRACE_S, Hello
from splitserve.protocol.handoff import Renew
from splitserve.roles.loop import (
    Close,
    ConnectionLost,
    DrainAsked,
    EngineThread,
    LinkOpened,
    OpenLink,
    Outbox,
    Outgoing,
    Received,
    Snapshot,
    StopAsked,
    Write,
)
from splitserve.roles.port import ConnId
from splitserve.roles.progress import Progress
from splitserve.roles.worker import Worker

log = logging.getLogger(__name__)

LOAD_EVERY_S: Final = 0.1
LOAD_AT_MOST_EVERY_S: Final = 0.02
RENEW_EVERY_S: Final = 1.0
RECONNECT_MIN_S: Final = 0.05
RECONNECT_MAX_S: Final = 1.0
JOIN_S: Final = 10.0


class WorkerServer:
    """``serve`` returns when the worker has drained or was stopped; it raises what broke it.

    Listener of all its connections.
    """

    def __init__(
        self,
        build: Callable[[Outbox], Worker],
        listen: str,
        clock: Clock,
        ready: Callable[[], None],
        drain_grace_s: float = DRAIN_GRACE_S,
    ) -> None:
        self._outbox = Outbox()
        self._worker = build(self._outbox)
        self._listen = listen
        self._clock = clock
        self._ready = ready
        self._connections: dict[ConnId, Connection] = {}
        self._gateways: set[ConnId] = set()
        self._link_tasks: dict[WorkerId, asyncio.Task[None]] = {}
        self._conn_of: dict[Connection, ConnId] = {}
        self._ids = count(1)
        self._snapshot: Snapshot | None = None
        self._load_sent = 0.0
        self._drain_grace_s = drain_grace_s
        self._progress = Progress(clock())

    async def serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._engine = EngineThread(
            self._worker, self._outbox, self._deliver, self._engine_ended, self._clock
        )
        server = await self._open()
        self._engine.start()
        heartbeat = asyncio.create_task(self._heartbeat())
        self._ready()
        try:
            await self._done
        finally:
            server.close()
            for task in (heartbeat, *self._link_tasks.values()):
                task.cancel()
            self._engine.post(StopAsked())
            if not await asyncio.to_thread(self._engine.join, JOIN_S):
                log.error("the engine did not stop within %.0f s", JOIN_S)
            for connection in list(self._connections.values()):
                connection.close()
            self._unlink()

    def drain(self) -> None:
        """Takes nothing new and ends when nothing is owed, or once the grace is over and the rest
        is handed over. From the event loop."""
        self._engine.post(DrainAsked(self._drain_grace_s))

    def stop(self) -> None:
        """Ends now. From the event loop."""
        self._finish(None)

    async def _open(self) -> asyncio.Server:
        address = parse_address(self._listen)
        if isinstance(address, UnixAddress):
            return await self._loop.create_unix_server(
                self._accept, sock=_unix_socket(address.path)
            )
        try:
            return await self._loop.create_server(self._accept, address.host, address.port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {self._listen}: {error.strerror}") from error

    def _unlink(self) -> None:
        address = parse_address(self._listen)
        if isinstance(address, UnixAddress):
            Path(address.path).unlink(missing_ok=True)

    def _accept(self) -> Connection:
        conn = ConnId(next(self._ids))
        connection = Connection(f"peer {conn}", self)
        self._conn_of[connection] = conn
        return connection

    def made(self, connection: Connection) -> None:
        self._connections[self._conn_of[connection]] = connection

    def received(self, connection: Connection, messages: list[Message]) -> None:
        conn = self._conn_of[connection]
        for message in messages:
            if isinstance(message, Hello):
                self._gateways.add(conn)
            self._engine.post(Received(conn, message))

    def lost(self, connection: Connection, reason: str) -> None:
        conn = self._conn_of.pop(connection)
        log.debug("connection %d ended: %s", conn, reason)
        del self._connections[conn]
        self._gateways.discard(conn)
        self._engine.post(ConnectionLost(conn))

    def _deliver(self, items: list[Outgoing], snapshot: Snapshot) -> None:
        """On the engine's thread."""
        with suppress(RuntimeError):  # the loop is closed while the last iteration hands over
            self._loop.call_soon_threadsafe(self._send_out, items, snapshot)

    def _send_out(self, items: list[Outgoing], snapshot: Snapshot) -> None:
        for item in items:
            match item:
                case Write(conn, frame):
                    connection = self._connections.get(conn)
                    if connection is not None:
                        connection.write(frame)
                case OpenLink(worker, address):
                    self._open_link(worker, address)
                case Close(conn):
                    connection = self._connections.get(conn)
                    if connection is not None:
                        connection.close()
        changed = self._snapshot is None or snapshot.load != self._snapshot.load
        self._snapshot = snapshot
        if changed and self._clock() - self._load_sent >= LOAD_AT_MOST_EVERY_S:
            self._send_load()

    def _send_load(self) -> None:
        if self._snapshot is None:
            return
        now = self._load_sent = self._clock()
        load = self._snapshot.load
        frame = encode(
            msgspec.structs.replace(
                load,
                gateways=len(self._gateways),
                since_step_s=self._progress.since_step_s(load, self._engine.turned, now),
            )
        )
        for conn in self._gateways:
            self._connections[conn].write(frame)

    async def _heartbeat(self) -> None:
        renewed = self._clock()
        while True:
            await asyncio.sleep(LOAD_EVERY_S)
            self._send_load()
            if self._clock() - renewed >= RENEW_EVERY_S:
                renewed = self._clock()
                self._renew()

    def _renew(self) -> None:
        if self._snapshot is None:
            return
        for conn, handoffs in self._snapshot.renewals.items():
            connection = self._connections.get(conn)
            if connection is not None:
                connection.write(encode(Renew(handoffs)))

    def _open_link(self, worker: WorkerId, address: str) -> None:
        earlier = self._link_tasks.pop(worker, None)
        if earlier is not None:
            earlier.cancel()
        self._link_tasks[worker] = asyncio.create_task(self._keep_link(address))

    async def _keep_link(self, address: str) -> None:
        """Connects, and again whenever the connection is lost."""
        target, pause = parse_address(address), RECONNECT_MIN_S
        while True:
            connection = self._accept()
            try:
                await connect(target, connection)
            except OSError:
                del self._conn_of[connection]
                await asyncio.sleep(pause)
                pause = min(pause * 2, RECONNECT_MAX_S)
                continue
            pause = RECONNECT_MIN_S
            self._engine.post(LinkOpened(self._conn_of[connection]))
            await connection.ended.wait()
            await asyncio.sleep(pause)

    def _engine_ended(self, error: BaseException | None) -> None:
        """On the engine's thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish, error)

    def _finish(self, error: BaseException | None) -> None:
        if self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)


def _unix_socket(path: str) -> socket.socket:
    """Bound with mode 0600: the file's rights are the access control on one host.

    A socket file that nobody listens on is a leftover of a killed worker and is replaced.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        previous = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(previous)
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen on unix:{path}: {error.strerror or error}") from error
    return sock


def _remove_stale(path: str) -> None:
    if not Path(path).exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
