import asyncio

import pytest

from splitserve.launch.probe import is_ready


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False),
        (b"HTTP/1.1 OK\r\n\r\n", False),
        (b"SSH-2.0-x 200\r\n", False),
        (b"", False),
    ],
)
async def test_only_200_is_ready(answer: bytes, ready: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"GET /ready HTTP/1.1\r\n"
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await is_ready("127.0.0.1", port) == ready


async def test_nobody_there_is_not_ready() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert not await is_ready("127.0.0.1", port)
