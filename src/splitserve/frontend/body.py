"""Reads a request's body, within a limit."""

import asyncio
from typing import Final

from starlette.types import Receive, Scope

from splitserve.errors import CallerError

BODY_TIMEOUT_S: Final = 120.0
"""For a whole body: one that trickles would hold a connection for ever."""


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


async def read_body(
    scope: Scope, receive: Receive, limit: int, *, timeout_s: float = BODY_TIMEOUT_S
) -> bytes:
    """Raises CallerError: 413 as soon as the body is known to be longer than ``limit`` bytes, 415
    for one that is compressed, 408 when it is not there in time. Raises ClientGone when it never
    ends because the client left."""
    _refuse_encoded(scope)
    if _declared_length(scope) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(receive, limit)
    except TimeoutError:
        raise CallerError(
            f"the body did not come within {timeout_s:g} s", status=408, code="request_timeout"
        ) from None


async def _read(receive: Receive, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)


def _refuse_encoded(scope: Scope) -> None:
    """A small compressed body may be a large one: none is taken."""
    for name, value in scope["headers"]:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise CallerError(
                "bodies must not be compressed", status=415, code="unsupported_content_encoding"
            )


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _too_large(limit: int) -> CallerError:
    return CallerError(
        f"the body is larger than {limit} bytes", status=413, code="request_too_large"
    )
