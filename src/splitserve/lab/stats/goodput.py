"""The greatest rate whose attainment is good enough: bounds from measured points, and where next.

Pure part of a search. Goodput is sup{rate : lower bound of attainment >= target}; a rate whose
interval straddles the target has not shown that it is carried.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from splitserve.lab.stats.shares import Count, clopper_pearson


@dataclass(frozen=True, slots=True)
class RatePoint:
    """One window: requests per second offered, and how many of all intended ones were good."""

    rate: float
    good: Count


@dataclass(frozen=True, slots=True)
class Goodput:
    """``carried``: the greatest rate shown to meet the target, 0 when none is.

    ``not_shown``: the smallest measured rate above, whose lower bound does not reach the target;
    ``missed``: the smallest whose upper bound does not either, which is shown to miss it. Both are
    infinite when there is none. ``next_rate``: what to measure next, None when ``carried`` and
    ``not_shown`` are close enough.
    """

    carried: float
    not_shown: float
    missed: float
    next_rate: float | None


def goodput(
    points: Sequence[RatePoint], target: float, *, confidence: float = 0.95, tolerance: float = 0.05
) -> Goodput:
    """Bounds after ``points`` (any order, at least one) for attainment ``target``.

    Bounds are one-sided and take requests as independent; repeat a point with another shard to see
    what runs add. ``tolerance`` is relative, of the rate. ValueError without points.
    """
    if not points:
        raise ValueError("no point was measured")
    smooth = smoothed(points)
    bounds = {p.rate: clopper_pearson(p.good, 2 * confidence - 1) for p in smooth}
    carried = max((rate for rate, b in bounds.items() if b.low >= target), default=0.0)
    missed = min((rate for rate, b in bounds.items() if b.high < target), default=math.inf)
    above = min((rate for rate in bounds if rate > carried), default=math.inf)
    return Goodput(carried, above, missed, _between(carried, above, max(bounds), tolerance))


def smoothed(points: Sequence[RatePoint]) -> tuple[RatePoint, ...]:
    """By rate, ascending, with attainment that never rises: neighbours that do are pooled.

    More load cannot make more requests good; where a sample says so it is noise, and both windows
    speak of one attainment (pool adjacent violators, weighted by requests).
    """
    blocks: list[tuple[list[float], Count]] = []
    for rate in sorted({p.rate for p in points}):
        same = [p.good for p in points if p.rate == rate]
        blocks.append(([rate], Count(sum(c.hits for c in same), sum(c.total for c in same))))
        while len(blocks) > 1 and blocks[-2][1].share < blocks[-1][1].share:
            (low, first), (high, second) = blocks[-2:]
            both = Count(first.hits + second.hits, first.total + second.total)
            blocks[-2:] = [(low + high, both)]
    return tuple(RatePoint(rate, count) for rates, count in blocks for rate in rates)


def _between(carried: float, ceiling: float, top: float, tolerance: float) -> float | None:
    if math.isinf(ceiling):
        return 2 * top
    if carried == 0:
        return ceiling / 2
    return None if ceiling <= carried * (1 + tolerance) else math.sqrt(carried * ceiling)
