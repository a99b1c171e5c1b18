"""The tail of one answer's gaps: what a mean cannot show and pooling hides."""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import Event, gaps
from splitserve.lab.measure.outcomes import standing

GAPS_FOR_Q99: Final = 100
GAPS_FOR_Q95: Final = 20


class TailRule(StrEnum):
    """Which gap of an answer is its tail. One rule for all requests of a cell."""

    Q99 = "q99"
    Q95 = "q95"
    MAX = "max"


_SHARES: Final = {TailRule.Q99: 0.99, TailRule.Q95: 0.95, TailRule.MAX: 1.0}


def tail_rule(gap_count: int) -> TailRule:
    """The highest quantile ``gap_count`` gaps can carry. A cell takes that of its output cap."""
    if gap_count >= GAPS_FOR_Q99:
        return TailRule.Q99
    return TailRule.Q95 if gap_count >= GAPS_FOR_Q95 else TailRule.MAX


def tail_gap(values: Sequence[float], rule: TailRule) -> float:
    """The order statistic that ``rule`` names: always a gap that occurred. ``values`` not empty."""
    ordered = sorted(values)
    # 1e-9: 0.99 * 100 is a little over 99 in binary, and must not become the 100th.
    return ordered[max(0, math.ceil(_SHARES[rule] * len(ordered) - 1e-9) - 1)]


def tail_itl(record: RequestRecord, rule: TailRule) -> float | None:
    """The tail of the request's gaps in seconds. Failed: infinite. None where there is no gap, or
    gaps are unknown."""
    return _of_gaps(record, rule)


def max_gap(record: RequestRecord) -> float | None:
    """The longest gap; as ``tail_itl`` otherwise. It shows the single freeze that no q99 does."""
    return _of_gaps(record, TailRule.MAX)


def stall(values: Sequence[float], limit_s: float) -> tuple[int, float]:
    """How many gaps exceed ``limit_s``, and by how many seconds in all."""
    over = [value - limit_s for value in values if value > limit_s]
    return len(over), sum(over)


def fluidity(events: Sequence[Event], start_s: float, first_s: float, each_s: float) -> float:
    """Share of tokens that came before their deadline, in [0, 1]; 0 without tokens.

    The first token is due ``first_s`` after ``start_s`` and every other one ``each_s`` after the
    deadline before it, so that a token ahead of time leaves slack to those after it. After a late
    token, deadlines start anew from its arrival: one freeze is one miss.

    Source: the text of the Etalon paper; its code counts a late token several times.
    """
    deadline_s, met, total = start_s + first_s, 0, 0
    for t_s, count in events:
        for _ in range(count):
            on_time = t_s <= deadline_s
            met += on_time
            total += 1
            deadline_s = (deadline_s if on_time else t_s) + each_s
    return met / total if total else 0.0


def _of_gaps(record: RequestRecord, rule: TailRule) -> float | None:
    if standing(record).failed:
        return math.inf
    found = gaps(record)
    return tail_gap(found, rule) if found else None
