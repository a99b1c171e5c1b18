"""A worker that speaks our frames, over a Unix or TCP socket."""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from splitserve.protocol.address import parse_address
from splitserve.protocol.codec import Message, encode
from splitserve.protocol.connection import Connection, connect
from splitserve.protocol.control import Hello, Welcome
from splitserve.protocol.gate import Gate
from splitserve.router.workers.client import Order, WorkerEvents

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 5.0
"""A host that answers nothing would hold a TCP connect for minutes."""


class NativeClient:
    """WorkerClient over frames, and Listener of its connection.

    ``gateway`` is this process's name in Hello; ``gate`` is what TCP connections must pass.
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
        gate: Gate | None = None,
    ) -> None:
        self._address = address
        self._target = parse_address(address)
        self._events = events
        self._gateway = gateway
        self._backoff_s = backoff_s
        self._max_backoff_s = max_backoff_s
        self._gate = gate
        self._connection: Connection | None = None
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
            self.lost(self._connection, reason)

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
            connection = Connection(f"worker {self._address}", self)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await connect(self._target, connection, self._gate)
            except (OSError, TimeoutError) as error:
                log.debug("cannot connect to %s: %s", self._address, error)
            else:
                await connection.ended.wait()
                if self._welcomed:
                    pause = self._backoff_s
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._max_backoff_s)

    # Listener

    def made(self, connection: Connection) -> None:
        self._connection = connection
        self._welcomed = False
        connection.write(encode(Hello(self._gateway)))
        self._events.connecting(self)

    def received(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            if connection is not self._connection:
                return  # what one of the messages led to has dropped it
            if isinstance(message, Welcome):
                self._welcomed = True
                self._events.welcomed(self, message)
            else:
                self._events.received(self, message)

    def lost(self, connection: Connection, reason: str) -> None:
        connection.abort()
        if connection is self._connection:
            self._connection = None
            self._events.lost(self, reason)
