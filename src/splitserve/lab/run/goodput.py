"""The search for the highest rate of an arm: where its next step goes.

A step follows from the steps before it that count, and from nothing else, so that a study that was
stopped goes on with the very rates that it would have had.
"""

from collections.abc import Sequence

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.attainment import Slo, is_good
from splitserve.lab.measure.outcomes import counted, measured
from splitserve.lab.stats.goodput import RatePoint, goodput
from splitserve.lab.stats.shares import Count


def point_of(rate_per_s: float, records: Sequence[RequestRecord], slo: Slo) -> RatePoint | None:
    """What a step showed, of all requests that were intended; None where none was the server's to
    answer."""
    asked = counted(measured(records))
    if not asked:
        return None
    return RatePoint(rate_per_s, Count(sum(is_good(one, slo) for one in asked), len(asked)))


def next_per_s(start_per_s: float, points: Sequence[RatePoint], attainment: float) -> float | None:
    """The rate of the next step: twice the highest while all are met, half the lowest while none
    is, then between the two sides. None when they are close enough."""
    return goodput(points, attainment).next_rate if points else start_per_s


def found_text(points: Sequence[RatePoint], attainment: float) -> str:
    """What a search that is over has found, for people."""
    found = goodput(points, attainment)
    return f"{found.carried:.4g}/s is met and {found.not_shown:.4g}/s is not shown to be"
