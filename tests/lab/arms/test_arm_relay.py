"""The proxy that does nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from splitserve.lab.arms.relay import Relay

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def bye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"bye")


@asynccontextmanager
async def serving(talk: Talk, connections: int) -> AsyncIterator[int]:
    """Its port; ends when ``connections`` are closed."""
    closed = asyncio.Semaphore(0)

    async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk(reader, writer)
        writer.close()
        await writer.wait_closed()
        closed.release()

    async with await asyncio.start_server(whole, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        for _ in range(connections):
            await closed.acquire()


async def said_to(relay: Relay, sent: bytes) -> bytes:
    """All that comes back for ``sent``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(relay.url.split(":")[-1]))
    writer.write(sent)
    got = await reader.readexactly(len(sent)) if sent else await reader.read()
    writer.close()
    await writer.wait_closed()
    return got


async def test_bytes_pass_both_ways_unchanged_and_are_heard() -> None:
    up, down = bytearray(), bytearray()
    sent = bytes(range(256)) * 8000
    heard = (up.extend, down.extend)
    async with serving(echo, 1) as port, Relay("127.0.0.1", port, lambda: heard) as relay:
        assert await said_to(relay, sent) == sent
    assert bytes(up) == bytes(down) == sent


async def test_an_end_is_passed_on() -> None:
    async with serving(bye, 1) as port, Relay("127.0.0.1", port) as relay:
        assert await said_to(relay, b"") == b"bye"


async def test_without_a_server_the_client_is_closed() -> None:
    async with serving(bye, 0) as port:
        pass
    async with Relay("127.0.0.1", port) as relay:
        assert await said_to(relay, b"") == b""
