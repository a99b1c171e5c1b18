import asyncio

import pytest

from splitserve.launch.probe import Readiness, ask_ready

_WARNED = Readiness(True, ("a: gone", "b: gone"))
_UNUSABLE = Readiness(False, ("no worker is usable",))


@pytest.mark.parametrize(
    ("answer", "readiness"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", Readiness(True)),
        (b'HTTP/1.1 200 OK\r\n\r\n{"warnings": ["a: gone", "b: gone"]}', _WARNED),
        (b'HTTP/1.1 503 No\r\n\r\n{"reason": "no worker is usable"}', _UNUSABLE),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n[]", Readiness(False)),
        (b"HTTP/1.1 OK\r\n\r\n", Readiness(False)),
        (b"SSH-2.0-x 200\r\n", Readiness(False)),
        (b"", Readiness(False)),
    ],
    ids=["200", "warned", "unusable", "503", "no-status", "ssh", "nothing"],
)
async def test_only_200_is_ready_and_reasons_are_heard(answer: bytes, readiness: Readiness) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"GET /ready HTTP/1.1\r\n"
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await ask_ready("127.0.0.1", port) == readiness


async def test_nobody_there_is_not_ready() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert await ask_ready("127.0.0.1", port) == Readiness(False)
