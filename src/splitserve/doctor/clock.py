"""How far a server's clock is from ours, by the Date header of its answers. Pure.

A Date is a whole second, and a server may make it once a second for all answers of that second. So
one answer bounds the server's time within two seconds. Answers spread over more than a second bound
it from both sides, about half a second each.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from splitserve.doctor.findings import ClockOffset

DATE_AGE_S: Final = 2.1
"""A second cut off, a second of being used again, and how late a busy server makes the next."""


@dataclass(frozen=True, slots=True)
class DateHeard:
    """``date_s`` is the header's, in seconds since 1970; the others are our clock's when we asked
    and when the answer was there."""

    date_s: float
    asked_s: float
    heard_s: float


def date_seconds(header: str | None) -> float | None:
    """Of a Date header; None for what is none."""
    if header is None:
        return None
    try:
        return parsedate_to_datetime(header).timestamp()
    except ValueError:
        return None


def clock_offset(heard: Iterable[DateHeard]) -> ClockOffset | None:
    """Where all answers agree: the middle, and half the width as the error's bound. None when there
    are none, or when they do not agree, as after a clock was set."""
    answers = list(heard)
    if not answers:
        return None
    # The server wrote the header between asked_s and heard_s, at most DATE_AGE_S after date_s.
    low = max(one.date_s - one.heard_s for one in answers)
    high = min(one.date_s + DATE_AGE_S - one.asked_s for one in answers)
    if low > high:
        return None
    return ClockOffset((low + high) / 2, (high - low) / 2)
