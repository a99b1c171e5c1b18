"""What the mock server sends in answer to one request."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Send:
    """``data`` in one write, ``at_s`` seconds after the request arrived."""

    at_s: float
    data: bytes


class Ending(StrEnum):
    """After the last send: wait for the next request, close, reset, or say nothing more."""

    KEEP = "keep"
    CLOSE = "close"
    RESET = "reset"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Script:
    """Sends in order of time. The bytes are the whole HTTP response."""

    sends: tuple[Send, ...]
    ending: Ending = Ending.KEEP


@dataclass(frozen=True, slots=True)
class Played:
    """What became of a script: when its request arrived and each send so far was written, in
    seconds of the server's clock."""

    request_id: str
    arrived_s: float
    sent_s: list[float]
