"""Lines of a request's body, as they arrive."""

from collections.abc import AsyncGenerator
from typing import Final

from starlette.types import Receive

from splitserve.errors import CallerError
from splitserve.frontend.body import ClientGone

MAX_LINE_BYTES: Final = 1024 * 1024
"""Of one chunk; the first line holds a whole request and has the limit of a body."""


async def arriving_lines(receive: Receive, first_limit: int) -> AsyncGenerator[list[bytes]]:
    """What each piece of the body completes: zero or more lines, without their ends and without
    empty ones; at the end what is left.

    Raises CallerError (413) as soon as a line is longer than allowed, ClientGone when the client
    left before the body's end.
    """
    held: list[bytes] = []
    size, limit, more = 0, first_limit, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        *ended, rest = message.get("body", b"").split(b"\n")
        lines: list[bytes] = []
        for piece in ended:
            _check(size + len(piece), limit)
            line = b"".join((*held, piece)).strip()
            held, size = [], 0
            if line:
                lines.append(line)
                limit = MAX_LINE_BYTES
        held.append(rest)
        size += len(rest)
        _check(size, limit)
        if not more and (last := b"".join(held).strip()):
            lines.append(last)
        yield lines


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise CallerError(
            f"a line is longer than {limit} bytes", status=413, code="request_too_large"
        )
