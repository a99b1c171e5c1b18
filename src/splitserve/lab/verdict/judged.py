"""One sentence of evidence with what it means, and a clause made of several."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from splitserve.lab.stats.interval import Interval
from splitserve.lab.stats.paired import Paired, Scale
from splitserve.lab.verdict.outcome import Clause, Status


@dataclass(frozen=True, slots=True)
class Judged:
    """A part of a clause."""

    status: Status
    says: str


def clause(name: str, parts: Sequence[Judged]) -> Clause:
    """Holds if every part holds, fails if one fails."""
    found = {part.status for part in parts}
    status = next((s for s in (Status.FAILS, Status.NOT_SHOWN) if s in found), Status.HOLDS)
    lacking = tuple(part.says for part in parts if part.status is not Status.HOLDS)
    return Clause(name, status, tuple(part.says for part in parts), lacking)


def yes_no(fact: bool | None, good: str, bad: str, unknown: str) -> Judged:
    """A check that passed, failed, or was not made."""
    if fact is None:
        return Judged(Status.NOT_SHOWN, unknown)
    return Judged(Status.HOLDS, good) if fact else Judged(Status.FAILS, bad)


def within(low: float, high: float, limit: float) -> Status:
    """An unknown value between two bounds against a limit from above."""
    if high <= limit:
        return Status.HOLDS
    return Status.FAILS if low > limit else Status.NOT_SHOWN


def effect_text(effect: Paired, confidence: float) -> str:
    """``0.71, [0.65, 0.78], 8 pairs`` for a ratio, percentage points for a share."""
    interval: Interval
    if effect.scale is Scale.RATIO:
        interval, point, unit = effect.ratio_interval(confidence), effect.ratio, ""
    else:
        plain = effect.interval(confidence)
        interval = Interval(100 * plain.low, 100 * plain.high, confidence)
        point, unit = 100 * effect.point, " pp"
    how = ", by order" if effect.by_order else ""
    return f"{_bound(point)}{unit}, {_bounds(interval)}, {effect.pairs} pairs{how}"


def at_most(bound: float, unit: str, scale: float = 1.0, digits: int = 3) -> str:
    """``at most 12 ms``: an upper bound, times ``scale``, in a sentence."""
    if math.isinf(bound):
        return "without an upper bound (n too small, or failures reach it)"
    return f"at most {scale * bound:.{digits}g}{unit}"


def _bounds(interval: Interval) -> str:
    # A ratio's interval that says nothing begins at 0, not below it.
    if interval.low <= 0 and math.isinf(interval.high):
        return "no bound (n too small)"
    return f"[{_bound(interval.low)}, {_bound(interval.high)}]"


def _bound(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.3g}"
