"""The id that joins what client, gateway and workers tell of one request."""

import asyncio
import re
import secrets
from typing import Final

from starlette.types import Scope

from splitserve.ids import new_request_id

HEADER: Final = b"x-request-id"
_MAX_CHARS: Final = 128
# "#" is left out: it separates a request's id from the number of a handoff.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._:-]")


class LiveIds:
    """Ids of the answers being made. Two requests that ask for the same id get different ones."""

    def __init__(self) -> None:
        self._live: dict[str, asyncio.Event] = {}

    def claim(self, prefix: str, asked: str) -> str:
        """``{prefix}-{asked}``, or a new one where nothing was asked for. Ends with ``release``."""
        found = f"{prefix}-{asked}" if asked else new_request_id(prefix)
        while found in self._live:
            found = f"{prefix}-{asked}-{secrets.token_hex(4)}"
        self._live[found] = asyncio.Event()
        return found

    def aborted(self, claimed: str) -> asyncio.Event:
        """Set when somebody else gives the answer up."""
        return self._live[claimed]

    def abort(self, claimed: str) -> None:
        """Unknown ids are ignored: the answer may have been faster."""
        if claimed in self._live:
            self._live[claimed].set()

    def release(self, claimed: str) -> None:
        self._live.pop(claimed, None)


def asked_id(scope: Scope) -> str:
    """The client's X-Request-Id without characters that are not safe in logs and headers, or ""."""
    for name, value in scope["headers"]:
        if name == HEADER:
            return _UNSAFE.sub("", value.decode("latin-1"))[:_MAX_CHARS]
    return ""
