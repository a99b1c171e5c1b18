"""Passes bytes on between connections, unread and unchanged: a proxy and nothing else.

``python -m splitserve.lab.arms.relay LISTEN_PORT HOST PORT`` is one in a process of its own.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Self, cast

Heed = Callable[[bytes], None]
"""Told of data as it comes in, before it is passed on."""

Hearing = Callable[[], tuple[Heed, Heed]]
"""Called for each connection: who is told of what the client sends, and of what the server does."""


def unheard() -> tuple[Heed, Heed]:
    """Nobody listens."""
    return _ignore, _ignore


class Relay:
    """Listens on 127.0.0.1 and passes everything on to ``host`` and ``port``. Use it as
    ``async with``; ``listen_port`` 0 takes a free one."""

    def __init__(
        self, host: str, port: int, hearing: Hearing = unheard, listen_port: int = 0
    ) -> None:
        self._server_at = (host, port)
        self._hearing = hearing
        self._listen_port = listen_port
        self._listening: asyncio.Server | None = None
        self._sides: set[_Side] = set()
        self._opening: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._client, "127.0.0.1", self._listen_port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listening is not None
        self._listening.close()
        for task in list(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for side in list(self._sides):
            side.abort()
        # Transports say goodbye one turn of the loop later.
        await asyncio.sleep(0)
        await self._listening.wait_closed()

    @property
    def url(self) -> str:
        """Without a path."""
        assert self._listening is not None
        return f"http://127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"

    def _client(self) -> "_Side":
        up, down = self._hearing()
        client, server = _Side(up, self._sides), _Side(down, self._sides)
        client.other, server.other = server, client
        task = asyncio.create_task(self._open(client, server))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return client

    async def _open(self, client: "_Side", server: "_Side") -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: server, *self._server_at)
        except OSError:
            # The client sees a closed connection, as it would without a proxy.
            client.end()


class _Side(asyncio.Protocol):
    """One end of a relayed connection."""

    def __init__(self, heed: Heed, sides: set["_Side"]) -> None:
        self.other: _Side | None = None
        self._heed = heed
        self._sides = sides
        self._waiting: list[bytes] = []
        self._ended = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._sides.add(self)
        for data in self._waiting:
            self._transport.write(data)
        self._waiting.clear()
        if self._ended:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._heed(data)
        assert self.other is not None
        self.other.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._sides.discard(self)
        if self.other is not None:
            self.other.end()

    def pause_writing(self) -> None:
        """This side takes no more for now: the other one is not read."""
        if self.other is not None and self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Kept until the connection is made."""
        if self._transport is None:
            self._waiting.append(data)
        else:
            self._transport.write(data)

    def end(self) -> None:
        """Closes once all is written."""
        self._ended = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Closes at once."""
        if self._transport is not None:
            self._transport.abort()


def _ignore(_: bytes) -> None:
    """Data that nobody looks at."""


async def _relay(listen_port: int, host: str, port: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Relay(host, port, listen_port=listen_port):
        await stop.wait()


def main(arguments: Sequence[str]) -> int:
    """Runs until SIGTERM."""
    # Ctrl-C reaches the whole group; who started this ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listen_port, host, port = arguments
    asyncio.run(_relay(int(listen_port), host, int(port)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
