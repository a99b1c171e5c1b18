"""An ASGI response, raw: whole, or a stream of server-sent events."""

import asyncio
from collections.abc import Awaitable
from typing import Final

from starlette.types import Send

from splitserve.frontend.failures import Failure, Headers

_UNCACHED: Final = (b"cache-control", b"no-cache")


class Response:
    """One HTTP response. It begins with the first write, so that until then an error can still
    have a status of its own. Sending waits while the client reads slower than it is sent to."""

    __slots__ = ("_headers", "_send", "_starting", "_streaming")

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = headers
        self._streaming = False
        self._starting = asyncio.Lock()

    def write(self, events: bytes) -> Awaitable[None]:
        """Sends events of a stream."""
        # Not a coroutine of its own: this runs for every token.
        if self._streaming:
            return self._send({"type": "http.response.body", "body": events, "more_body": True})
        return self._write_first(events)

    async def end(self, events: bytes) -> None:
        """Sends the last events of a stream that has begun."""
        await self._send({"type": "http.response.body", "body": events, "more_body": False})

    async def whole(self, status: int, body: bytes, headers: Headers) -> None:
        """Sends a JSON response that is no stream."""
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, b"application/json", [length, *headers])
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def fail(self, failure: Failure) -> None:
        """Sends an error, in a stream that has begun as its last event: with no finish_reason and
        no [DONE] before or after it, so that nobody takes it for the end of an answer."""
        if self._streaming:
            await self.end(b"data: " + failure.body + b"\n\n")
        else:
            await self.whole(failure.status, failure.body, failure.headers)

    async def _write_first(self, events: bytes) -> None:
        async with self._starting:
            if not self._streaming:
                await self._start(200, b"text/event-stream; charset=utf-8", [_UNCACHED])
                self._streaming = True
        await self.write(events)

    async def _start(self, status: int, content_type: bytes, headers: Headers) -> None:
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", content_type), *headers, *self._headers],
            }
        )
