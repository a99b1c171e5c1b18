"""A streaming client that does nothing but note when bytes come.

Parsing waits until the answers are over, so that the client adds as little as it can to what it
measures, also when 64 streams get a token at the same moment.
"""

import asyncio
import multiprocessing
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
import uvloop

from splitserve.clock import monotonic
from splitserve.errors import UnavailableError

_EVENT: Final = b"data: {"
_END: Final = b"data: [DONE]"


def stream_in_own_process(
    url: str, bodies: Sequence[bytes], timeout_s: float
) -> list[list[tuple[float, str]]]:
    """Sends all ``bodies`` to ``url`` at once; per body, arrival time and text of each event.

    Times are of this host's monotonic clock. Raises UnavailableError when an answer is not whole.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_main, args=(url, list(bodies), timeout_s, theirs))
    process.start()
    theirs.close()
    try:
        reads = msgspec.msgpack.decode(ours.recv_bytes(), type=list[list[tuple[float, bytes]]])
    except EOFError as error:
        raise UnavailableError("the measuring client failed; see its message above") from error
    finally:
        process.join()
    return [_events(stream) for stream in reads]


def _main(url: str, bodies: list[bytes], timeout_s: float, results: Pipe) -> None:
    results.send_bytes(msgspec.msgpack.encode(uvloop.run(_run(url, bodies, timeout_s))))


async def _run(url: str, bodies: list[bytes], timeout_s: float) -> list[list[tuple[float, bytes]]]:
    loop = asyncio.get_running_loop()
    target = urlsplit(url)
    assert target.hostname is not None
    streams = [_Stream(_http_request(target.path, body)) for body in bodies]
    for stream in streams:
        await loop.create_connection(partial(_same, stream), target.hostname, target.port or 80)
    async with asyncio.timeout(timeout_s):
        for stream in streams:
            await stream.ended.wait()
    return [stream.reads for stream in streams]


def _same(stream: "_Stream") -> "_Stream":
    return stream


def _http_request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _Stream(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self.reads: list[tuple[float, bytes]] = []
        self.ended = asyncio.Event()
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.reads.append((monotonic(), data))
        if _END in data:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.ended.set()


def _events(reads: list[tuple[float, bytes]]) -> list[tuple[float, str]]:
    """An event has arrived when its last byte has."""
    buffer, events, done = b"", [], False
    for when, data in reads:
        buffer += data
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            done = done or line.startswith(_END)
            if line.startswith(_EVENT):
                event = msgspec.json.decode(line[len(_EVENT) - 1 :])
                events.append((when, str(event["choices"][0]["text"])))
    if not done:
        raise UnavailableError(
            f"an answer ended early: {reads[-1][1][-200:]!r}" if reads else "no answer came"
        )
    return events
