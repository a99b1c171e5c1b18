"""A worker that speaks our frames, over a Unix or TCP socket."""

import asyncio
import logging
from contextlib import suppress
from typing import Final, cast

from splitserve.errors import ProtocolMismatch
from splitserve.protocol.address import UnixAddress, parse_address
from splitserve.protocol.codec import FrameDecoder, Message, encode
from splitserve.protocol.control import Hello, Welcome
from splitserve.router.workers.client import Order, WorkerEvents

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 5.0
"""A host that answers nothing would hold a TCP connect for minutes."""

MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""A worker that reads nothing for so long is cut off: its orders must not fill our memory."""


class NativeClient:
    """WorkerClient over frames. ``gateway`` is this process's name in Hello.

    Pauses between attempts to connect grow from ``backoff_s`` to ``max_backoff_s``; a connection
    on which the worker said who it is resets them. Raises ConfigError for an unusable address.
    """

    def __init__(
        self,
        address: str,
        events: WorkerEvents,
        *,
        gateway: str,
        backoff_s: float,
        max_backoff_s: float,
    ) -> None:
        self._address = address
        self._target = parse_address(address)
        self._events = events
        self._gateway = gateway
        self._backoff_s = backoff_s
        self._max_backoff_s = max_backoff_s
        self._connection: _Connection | None = None
        self._welcomed = False
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return self._address

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._stay_connected())

    def send(self, order: Order) -> bool:
        connection = self._connection
        if connection is None:
            return False
        connection.write(encode(order))
        return True

    def drop(self, reason: str) -> None:
        if self._connection is not None:
            self.on_lost(self._connection, reason)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _stay_connected(self) -> None:
        pause = self._backoff_s
        while True:
            connection = _Connection(self)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await self._connect(connection)
            except (OSError, TimeoutError) as error:
                log.debug("cannot connect to %s: %s", self._address, error)
            else:
                await connection.ended.wait()
                if self._welcomed:
                    pause = self._backoff_s
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._max_backoff_s)

    async def _connect(self, connection: "_Connection") -> None:
        loop = asyncio.get_running_loop()
        if isinstance(self._target, UnixAddress):
            await loop.create_unix_connection(lambda: connection, self._target.path)
        else:
            await loop.create_connection(lambda: connection, self._target.host, self._target.port)

    # Called by the connection

    def on_made(self, connection: "_Connection") -> None:
        self._connection = connection
        self._welcomed = False
        connection.write(encode(Hello(self._gateway)))
        self._events.connecting(self)

    def on_messages(self, connection: "_Connection", messages: list[Message]) -> None:
        for message in messages:
            if connection is not self._connection:
                return  # what one of the messages led to has dropped it
            if isinstance(message, Welcome):
                self._welcomed = True
                self._events.welcomed(self, message)
            else:
                self._events.received(self, message)

    def on_lost(self, connection: "_Connection", reason: str) -> None:
        connection.abort()
        if connection is self._connection:
            self._connection = None
            self._events.lost(self, reason)


class _Connection(asyncio.Protocol):
    """One life of the socket. ``ended`` is set when it is over."""

    def __init__(self, client: NativeClient) -> None:
        self.ended = asyncio.Event()
        self._client = client
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports implement the interface without deriving from it.
        self._transport = cast("asyncio.Transport", transport)
        self._client.on_made(self)

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._decoder.feed(data)
        except ProtocolMismatch as error:
            log.error("closing the connection to %s: %s", self._client.address, error)
            self._client.on_lost(self, str(error))
            return
        self._client.on_messages(self, messages)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.on_lost(self, "the connection closed" if exc is None else str(exc))
        self.ended.set()

    def write(self, frame: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return  # connection_lost is about to be called and tells
        transport.write(frame)
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            log.error("worker at %s does not read; cutting it off", self._client.address)
            transport.abort()

    def close(self) -> None:
        """After what is queued has left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
