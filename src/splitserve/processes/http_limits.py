"""What one HTTP connection may make us hold and wait for, before any application sees it."""

import asyncio
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from splitserve.frontend.failures import http_failure

MAX_HEAD_BYTES: Final = 32 * 1024
"""Of a request's target and headers together, and of anything else that is no body."""

MAX_HEADERS: Final = 100
HEAD_TIMEOUT_S: Final = 20.0
"""From a request's first byte to the end of its headers."""

FIRST_BYTE_TIMEOUT_S: Final = 75.0
MAX_LEFT_BYTES: Final = 16 * 1024 * 1024
"""Of a body that goes on after its answer: a client may have to send it out before it reads."""

_CODES: Final = {
    HTTPStatus.BAD_REQUEST: ("this is no HTTP request", "invalid_http"),
    HTTPStatus.REQUEST_TIMEOUT: ("the request's headers did not come in time", "request_timeout"),
    HTTPStatus.REQUEST_URI_TOO_LONG: ("the request's target is too long", "target_too_long"),
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: (
        "the request's headers are too large or too many",
        "headers_too_large",
    ),
}


class _OverLimit(Exception):
    """Ends the parser from within one of its callbacks."""


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's, which by itself holds headers of any size and waits for them for ever."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refusal = HTTPStatus.BAD_REQUEST
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head_bytes = 0
        self._unparsed = 0
        self._left = 0
        self._told = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(FIRST_BYTE_TIMEOUT_S, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._told = False
        super().data_received(data)
        # What the parser tells nobody of, it may be holding.
        self._unparsed = 0 if self._told else self._unparsed + len(data)
        if self._unparsed > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self.send_400_response("")

    # The parser's callbacks

    def on_message_begin(self) -> None:
        self._told = self._in_head = True
        self._head_bytes = self._left = 0
        self._disarm()
        self._timer = self.loop.call_later(HEAD_TIMEOUT_S, self._late)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._told = True
        self._head_bytes += len(url)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refusal = HTTPStatus.REQUEST_URI_TOO_LONG
            raise _OverLimit
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._told = True
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES or len(self.headers) >= MAX_HEADERS:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise _OverLimit
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._told, self._in_head = True, False
        self._disarm()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._told = True
        if self.cycle.response_complete:
            self._left += len(body)
            if self._left > MAX_LEFT_BYTES:
                self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._told = True
        super().on_message_complete()

    # Refusing

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls it for whatever its parser refuses; ``msg`` is its word for that."""
        del msg
        cycle: RequestResponseCycle | None = self.cycle
        # An answer that has begun must not be written into.
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(_answer(self._refusal))
        self.transport.close()

    def _late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._in_head:
            self._refusal = HTTPStatus.REQUEST_TIMEOUT
            self.send_400_response("")
        else:
            self.transport.close()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _answer(status: HTTPStatus) -> bytes:
    message, code = _CODES[status]
    body = http_failure(status, message, code)
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    ).encode() + body
