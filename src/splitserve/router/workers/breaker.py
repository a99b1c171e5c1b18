"""A circuit breaker: a worker that only fails is left alone, and tried again now and then. Pure.

closed --failures in a row--> open --backoff--> half_open --success--> closed
                                ^                   |
                                '------failure------'
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from splitserve.protocol.codec import Message
from splitserve.protocol.control import Failed, StepTokens
from splitserve.protocol.handoff import PrefillDone

THRESHOLD: Final = 3
"""Failures in a row that open it."""

BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 30.0
"""First and longest time between two probes."""


class BreakerState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Times in seconds of one clock. In HALF_OPEN one request may go there as a probe; when that
    brings no verdict, another may go after the same backoff."""

    def __init__(self) -> None:
        self.failures = 0
        self._backoff_s = BACKOFF_S
        self._probe_at = 0.0

    def state(self, now: float) -> BreakerState:
        if self.failures < THRESHOLD:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if now >= self._probe_at else BreakerState.OPEN

    def allows(self, now: float) -> bool:
        """Whether a request may go there, others being as good."""
        return self.state(now) is not BreakerState.OPEN

    def sent(self, now: float) -> None:
        """A request went there: in HALF_OPEN it is the probe."""
        if self.state(now) is BreakerState.HALF_OPEN:
            self._probe_at = now + self._backoff_s

    def failed(self, now: float) -> None:
        self.failures += 1
        if self.failures > THRESHOLD:
            self._backoff_s = min(self._backoff_s * 2, MAX_BACKOFF_S)
        if self.failures >= THRESHOLD:
            self._probe_at = now + self._backoff_s

    def succeeded(self) -> None:
        self.failures = 0
        self._backoff_s = BACKOFF_S


NOT_ITS_FAULT: Final = frozenset(
    {
        "invalid",
        "too_long",
        "duplicate",
        "draining",
        "role_changed",
        "no_blocks",
        "cancelled",
        "no_replay",
        "not_linked",
        "stale_link",
        "writer_lost",
        "decode_lost",
        "lease_expired",
    }
)
"""Codes of Failed that say nothing of the worker that sends them: the request's own fault, a lack
of room, or another process's end, which is counted where that one is lost."""


def verdict(message: Message) -> bool | None:
    """Whether what a worker says shows that it works (True) or that it does not (False)."""
    match message:
        case Failed():
            return None if message.code in NOT_ITS_FAULT else False
        case StepTokens():
            ended = any(chunk.finish_reason in ("stop", "length") for chunk in message.chunks)
            return True if ended else None
        case PrefillDone():
            return True
        case _:
            return None


def spared(breakers: Mapping[str, Breaker], now: float) -> frozenset[str]:
    """The workers to place requests on: all but those with an open breaker; all if that is none."""
    allowed = frozenset(name for name, breaker in breakers.items() if breaker.allows(now))
    return allowed or frozenset(breakers)
