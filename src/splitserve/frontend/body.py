"""Reads a request's body, within a limit."""

from starlette.types import Receive, Scope

from splitserve.errors import CallerError


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Raises CallerError (413) as soon as the body is known to be longer than ``limit`` bytes,
    ClientGone when it never ends."""
    if _declared_length(scope) > limit:
        raise _too_large(limit)
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


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _too_large(limit: int) -> CallerError:
    return CallerError(
        f"the body is larger than {limit} bytes", status=413, code="request_too_large"
    )
