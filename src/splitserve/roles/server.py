"""The worker's sockets: listens, links to other workers, sends liveness by time.

Runs on the main thread's event loop; everything that decides runs on the engine's thread.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from splitserve.clock import Clock
from splitserve.ids import WorkerId
from splitserve.protocol.address import UnixAddress, parse_address
from splitserve.protocol.codec import Message, encode
from splitserve.protocol.connection import Connection, connect
from splitserve.protocol.control import DRAIN_GRACE_S, Hello
from splitserve.protocol.gate import Gate
from splitserve.protocol.handoff import Attach, Renew
from splitserve.protocol.listening import listen
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
LINK_SILENCE_S: Final = 3.0
"""A link whose other end says nothing for so long is dead."""

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
        gate: Gate | None = None,
    ) -> None:
        self._outbox = Outbox()
        self._worker = build(self._outbox)
        self._listen = listen
        self._clock = clock
        self._ready = ready
        self._connections: dict[ConnId, Connection] = {}
        self._gateways: set[ConnId] = set()
        # Links that this worker opened, and when it last heard of each; links that came to it.
        self._opened: dict[ConnId, float] = {}
        self._attached: set[ConnId] = set()
        self._link_tasks: dict[WorkerId, asyncio.Task[None]] = {}
        self._conn_of: dict[Connection, ConnId] = {}
        self._ids = count(1)
        self._snapshot: Snapshot | None = None
        self._load_sent = 0.0
        self._drain_grace_s = drain_grace_s
        self._gate = gate or Gate()
        self._progress = Progress(clock())

    async def serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._engine = EngineThread(
            self._worker, self._outbox, self._deliver, self._engine_ended, self._clock
        )
        server = await listen(parse_address(self._listen), self._accept, self._gate)
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
        conn, now = self._conn_of[connection], self._clock()
        if conn in self._opened:
            self._opened[conn] = now
        for message in messages:
            if isinstance(message, Hello):
                self._gateways.add(conn)
            elif isinstance(message, Attach):
                self._attached.add(conn)
            self._engine.post(Received(conn, message, now))

    def lost(self, connection: Connection, reason: str) -> None:
        conn = self._conn_of.pop(connection)
        log.debug("connection %d ended: %s", conn, reason)
        del self._connections[conn]
        self._gateways.discard(conn)
        self._attached.discard(conn)
        self._opened.pop(conn, None)
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
                self._cut_silent_links()

    def _renew(self) -> None:
        """Both ends of a link say something, so that a dead one is noticed."""
        renewals = {} if self._snapshot is None else self._snapshot.renewals
        for conn in (*self._opened, *self._attached):
            connection = self._connections.get(conn)
            if connection is not None:
                connection.write(encode(Renew(renewals.get(conn, ()))))

    def _cut_silent_links(self) -> None:
        """A connection can be dead without an end (half-open). The new one that follows frees what
        the decode worker kept for this process."""
        now = self._clock()
        for conn, heard in list(self._opened.items()):
            connection = self._connections.get(conn)
            if connection is not None and now - heard > LINK_SILENCE_S:
                log.warning("nothing was heard on link %d for %.1f s: cut", conn, now - heard)
                connection.abort()

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
                await connect(target, connection, self._gate)
            except OSError:
                del self._conn_of[connection]
                await asyncio.sleep(pause)
                pause = min(pause * 2, RECONNECT_MAX_S)
                continue
            pause = RECONNECT_MIN_S
            self._opened[self._conn_of[connection]] = self._clock()
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
