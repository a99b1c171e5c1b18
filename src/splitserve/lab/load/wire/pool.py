"""Connections kept between requests, so that opening one is not part of what is measured."""

import asyncio
from typing import Final

from splitserve.clock import Clock
from splitserve.lab.load.wire.http import Connection
from splitserve.lab.load.wire.target import Target

IDLE_LIMIT_S: Final = 2.0
"""Servers close idle connections after some seconds (5 in uvicorn). A request that meets such a
close would fail through no fault of the server's, so ours are given up well before."""


class Pool:
    """The connections of one client. There is no limit: a limit would throttle the load."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self._addresses = list(target.addresses)
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()

    async def take(self) -> Connection:
        """An open connection, the one used last where there is one. Raises OSError."""
        limit_s = self._clock() - IDLE_LIMIT_S
        while self._idle:
            connection = self._idle.pop()
            if connection.closed:
                self._all.discard(connection)
            elif connection.idle_since_s < limit_s:
                self.drop(connection)
            else:
                return connection
        return await self._open()

    def give_back(self, connection: Connection) -> None:
        """``connection`` may serve another request."""
        self._idle.append(connection)

    def drop(self, connection: Connection) -> None:
        """Closes ``connection``, whatever it does."""
        self._all.discard(connection)
        connection.abort()

    async def warm(self, count: int) -> None:
        """Opens ``count`` connections for requests within the next seconds. Raises OSError."""
        for connection in [await self._open() for _ in range(count)]:
            self.give_back(connection)

    def close(self) -> None:
        """Closes all connections."""
        for connection in list(self._all):
            self.drop(connection)
        self._idle.clear()

    async def _open(self) -> Connection:
        """Tries the host's addresses, the one that answered last first: ``localhost`` has two, and
        most servers listen on one of them."""
        refused = OSError("the host has no address")
        for address in list(self._addresses):
            try:
                connection = await self._connect(address)
            except OSError as error:
                refused = error
                continue
            self._addresses.sort(key=lambda known: known != address)
            return connection
        raise refused

    async def _connect(self, address: str) -> Connection:
        target = self._target
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._clock, self.give_back),
            address,
            target.port,
            ssl=target.tls,
            server_hostname=target.host if target.tls else None,
        )
        self._all = {known for known in self._all if not known.closed}
        self._all.add(connection)
        return connection
