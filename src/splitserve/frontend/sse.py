"""An ASGI response, raw: whole, or a stream of server-sent events."""

from collections.abc import Awaitable
from typing import Final

from starlette.types import Send

from splitserve.frontend.failures import Headers

_UNCACHED: Final = (b"cache-control", b"no-cache")


class Response:
    """One HTTP response. It begins with the first write, so that until then an error can still
    have a status of its own."""

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = headers
        self.started = False

    def write(self, events: bytes) -> Awaitable[None]:
        """Sends events of a stream. Waits while the client reads slower than they come."""
        # Not a coroutine of its own: this runs for every token.
        if self.started:
            return self._send({"type": "http.response.body", "body": events, "more_body": True})
        return self._write_first(events)

    async def end(self, events: bytes = b"") -> None:
        """Ends a stream that has begun."""
        await self._send({"type": "http.response.body", "body": events, "more_body": False})

    async def whole(self, status: int, body: bytes, headers: Headers) -> None:
        """Sends a JSON response that is no stream."""
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, b"application/json", [length, *headers])
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def _write_first(self, events: bytes) -> None:
        await self._start(200, b"text/event-stream; charset=utf-8", [_UNCACHED])
        await self.write(events)

    async def _start(self, status: int, content_type: bytes, headers: Headers) -> None:
        self.started = True
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", content_type), *headers, *self._headers],
            }
        )
