"""One series of pairs, compared; and what its intervals say as up, down, same or unclear."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from splitserve.lab.stats.paired import Paired, differences, ratios
from splitserve.lab.stats.shares import Count, difference, difference_upper, pooled
from splitserve.lab.verdict.evidence import Pair, RunFigures
from splitserve.lab.verdict.rules import Rules


class Direction(Enum):
    """B against A. UNCLEAR is neither shown different nor shown equal."""

    DOWN = "↓"
    UP = "↑"
    SAME = "="
    UNCLEAR = "?"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The quantities of one series, each on its own line; B against A.

    ``error_lower`` is the two-sided bound over requests, ``error_upper`` the one-sided one. The
    last two are None unless every run has them.
    """

    pairs: tuple[Pair, ...]
    tail_itl: Paired
    ttft: Paired
    attainment: Paired
    error_lower: float
    error_upper: float
    first_gap: Paired | None
    throughput: Paired | None

    def a(self, figure: Callable[[RunFigures], float]) -> list[float]:
        """One figure of all runs of A."""
        return [figure(p.a) for p in self.pairs]

    def b(self, figure: Callable[[RunFigures], float]) -> list[float]:
        """One figure of all runs of B."""
        return [figure(p.b) for p in self.pairs]

    @property
    def errors_b(self) -> list[Count]:
        """Failed requests per run of B."""
        return [p.b.errors for p in self.pairs]


def compare(pairs: Sequence[Pair], confidence: float = 0.95) -> Comparison | None:
    """The comparison of a series; None for one without pairs."""
    return compare_all(pairs, confidence) if pairs else None


def compare_all(pairs: Sequence[Pair], confidence: float = 0.95) -> Comparison:
    """The comparison of at least one pair. ValueError without any."""
    a, b = [p.a for p in pairs], [p.b for p in pairs]
    errors_a, errors_b = [r.errors for r in a], [r.errors for r in b]
    return Comparison(
        pairs=tuple(pairs),
        tail_itl=ratios([r.tail_itl_s for r in a], [r.tail_itl_s for r in b]),
        ttft=ratios([r.ttft_s for r in a], [r.ttft_s for r in b]),
        attainment=differences([r.attained.share for r in a], [r.attained.share for r in b]),
        error_lower=difference(pooled(errors_a), pooled(errors_b), confidence).low,
        error_upper=difference_upper(errors_a, errors_b, confidence),
        first_gap=_ratios_where_known([r.first_gap_s for r in a], [r.first_gap_s for r in b]),
        throughput=_ratios_where_known([r.throughput for r in a], [r.throughput for r in b]),
    )


def direction(effect: Paired, smallest: float, alpha: float = 0.05) -> Direction:
    """Where the interval lies against +-``smallest`` (> 0, on the effect's scale)."""
    interval = effect.interval(1 - alpha)
    if interval.high <= -smallest:
        return Direction.DOWN
    if interval.low >= smallest:
        return Direction.UP
    return Direction.SAME if effect.equivalence_p(smallest) <= alpha else Direction.UNCLEAR


@dataclass(frozen=True, slots=True)
class Directions:
    """A comparison in arrows."""

    tail_itl: Direction
    ttft: Direction
    attainment: Direction
    first_gap: Direction | None
    throughput: Direction | None

    @property
    def all_same(self) -> bool:
        """Whether tail ITL, TTFT and attainment are shown to be equal."""
        return {self.tail_itl, self.ttft, self.attainment} == {Direction.SAME}


def directions(compared: Comparison | None, rules: Rules) -> Directions | None:
    """Arrows by the plan's smallest effects; the first gap goes by that of TTFT."""
    if compared is None:
        return None
    effects, alpha = rules.effects, rules.alpha
    ttft, rate = -math.log(effects.ttft_ratio), -math.log(effects.throughput_ratio)
    return Directions(
        tail_itl=direction(compared.tail_itl, -math.log(effects.tail_itl_ratio), alpha),
        ttft=direction(compared.ttft, ttft, alpha),
        attainment=direction(compared.attainment, effects.attainment, alpha),
        first_gap=_where_known(compared.first_gap, ttft, alpha),
        throughput=_where_known(compared.throughput, rate, alpha),
    )


def _where_known(effect: Paired | None, smallest: float, alpha: float) -> Direction | None:
    return None if effect is None else direction(effect, smallest, alpha)


def _ratios_where_known(a: Sequence[float | None], b: Sequence[float | None]) -> Paired | None:
    first, second = [x for x in a if x is not None], [x for x in b if x is not None]
    return ratios(first, second) if len(first) == len(second) == len(a) else None
