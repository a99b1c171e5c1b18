"""Paired runs: how much one arm differs from the other, with the pair as the unit.

Requests of one run share queue, batches and clock frequency; an interval that takes them as
independent covers 6 to 73 of 100 times where 95 are promised (simulated queues). So each pair of
runs, which saw the same prompts at the same times, gives one number:

    ratio        d = ln Q_B - ln Q_A      for a time (a quantile over the run's requests)
    difference   d = x_B - x_A            for a share

and inference is the t interval of K such numbers. The estimand is finite: "this statistic, over
such a window of this corpus at this rate". Both runs of a pair draw from one design, so d is nearly
symmetric and t holds its level from K = 4 on; what pairing takes out is variance, 20 to 30 times.

Where a run's quantile is infinite (more failures than the quantile leaves room for) or all pairs
agree to the last digit, a deviation says nothing. Then the median of the d and the sign test take
over: they need order only. A pair in which both are infinite decides neither way, and is counted at
the bad end of whichever bound is asked for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median_high, median_low

from splitserve.lab.stats.distributions import binomial_below, t_below, t_quantile
from splitserve.lab.stats.interval import Interval, deviation, exponential, mean
from splitserve.lab.stats.quantile import inverse_cdf


class Scale(Enum):
    """What a pair's number is."""

    RATIO = "ratio"
    DIFFERENCE = "difference"


@dataclass(frozen=True, slots=True)
class Paired:
    """``differences``: one d per pair, in the order run; NaN where both sides are infinite.

    On scale RATIO they are natural logarithms; what the methods give is in logarithms too, and
    ``ratio``/``ratio_interval`` are for people.
    """

    scale: Scale
    differences: tuple[float, ...]

    @property
    def pairs(self) -> int:
        """K."""
        return len(self.differences)

    @property
    def by_order(self) -> bool:
        """Whether the sign test speaks, because a deviation would say nothing."""
        return self.pairs < 2 or self.sd is None or self.sd == 0

    @property
    def sd(self) -> float | None:
        """Deviation of d over pairs; None with an infinite d or fewer than two pairs."""
        if self.pairs < 2 or not all(map(math.isfinite, self.differences)):
            return None
        # Pairs that agree up to rounding agree.
        spread = deviation(self.differences)
        return spread if spread > 1e-12 * max(1.0, *map(abs, self.differences)) else 0.0

    @property
    def point(self) -> float:
        """The estimate: the mean of d, or their median where order speaks."""
        if self.by_order:
            return _middle([0.0 if math.isnan(d) else d for d in self.differences])
        return mean(self.differences)

    def interval(self, confidence: float = 0.95) -> Interval:
        """Two-sided interval of d."""
        if self.by_order:
            return self._order_interval(confidence)
        reach = t_quantile(0.5 + confidence / 2, self.pairs - 1) * self._error()
        return Interval(self.point - reach, self.point + reach, confidence)

    def p_below(self, border: float = 0.0) -> float:
        """One-sided p value of "d is below ``border``"."""
        if self.by_order:
            against = sum(not d < border for d in self.differences)
            return binomial_below(against, self.pairs, 0.5)
        return t_below((self.point - border) / self._error(), self.pairs - 1)

    def p_above(self, border: float = 0.0) -> float:
        """One-sided p value of "d is above ``border``"."""
        if self.by_order:
            against = sum(not d > border for d in self.differences)
            return binomial_below(against, self.pairs, 0.5)
        return t_below((border - self.point) / self._error(), self.pairs - 1)

    def equivalence_p(self, margin: float) -> float:
        """Schuirmann's two one-sided tests: p value of "d is within +-``margin``" (> 0)."""
        return max(self.p_above(-margin), self.p_below(margin))

    @property
    def ratio(self) -> float:
        """B/A on scale RATIO; infinite when B failed and A did not."""
        return exponential(self.point)

    def ratio_interval(self, confidence: float = 0.95) -> Interval:
        """The interval of B/A on scale RATIO."""
        return self.interval(confidence).exponentials()

    def _error(self) -> float:
        return deviation(self.differences) / math.sqrt(self.pairs)

    def _order_interval(self, confidence: float) -> Interval:
        worst = sorted(-math.inf if math.isnan(d) else d for d in self.differences)
        best = sorted(math.inf if math.isnan(d) else d for d in self.differences)
        half = (1 - confidence) / 2
        # The largest rank that the sign test still allows; none below six pairs at 95 %.
        rank = sum(binomial_below(r - 1, self.pairs, 0.5) <= half for r in range(1, self.pairs + 1))
        if rank == 0:
            return Interval(-math.inf, math.inf, confidence)
        return Interval(worst[rank - 1], best[-rank], confidence)


def ratios(a: Sequence[float], b: Sequence[float]) -> Paired:
    """Pairs of positive times, ``math.inf`` for a run whose quantile failed.

    ValueError when lengths differ, nothing is given, or a time is not positive.
    """
    _check(a, b)
    if any(not x > 0 for x in (*a, *b)):
        raise ValueError("times must be positive")
    pairs = zip(a, b, strict=True)
    return Paired(Scale.RATIO, tuple(math.log(y) - math.log(x) for x, y in pairs))


def differences(a: Sequence[float], b: Sequence[float]) -> Paired:
    """Pairs of finite values such as shares. ValueError as in ``ratios``."""
    _check(a, b)
    if not all(map(math.isfinite, (*a, *b))):
        raise ValueError("shares are finite")
    return Paired(Scale.DIFFERENCE, tuple(y - x for x, y in zip(a, b, strict=True)))


def pooled_ratio(
    a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], p: float
) -> Paired | None:
    """Ratio of the quantiles ``p`` of all requests of an arm, as pseudo-values per left-out pair.

    A second view beside ``ratios``: less biased where runs are short against the queue's memory
    (the studentised jackknife). Each argument: one sample of times per run,
    pair by pair. None when a pooled quantile is infinite, or with fewer than three pairs.
    """
    _check(a, b)
    pairs = len(a)
    if pairs < 3:
        return None
    whole = _log_ratio(a, b, p)
    left = [_log_ratio([*a[:j], *a[j + 1 :]], [*b[:j], *b[j + 1 :]], p) for j in range(pairs)]
    if not all(map(math.isfinite, (whole, *left))):
        return None
    return Paired(Scale.RATIO, tuple(pairs * whole - (pairs - 1) * out for out in left))


def _log_ratio(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], p: float) -> float:
    top = inverse_cdf([x for run in b for x in run], p)
    return math.log(top) - math.log(inverse_cdf([x for run in a for x in run], p))


def _middle(values: Sequence[float]) -> float:
    """The median; 0 where the two in the middle fail on opposite sides."""
    low, high = median_low(values), median_high(values)
    if math.isinf(low) and math.isinf(high):
        return low if low == high else 0.0
    return (low + high) / 2


def _check(a: Sequence[object], b: Sequence[object]) -> None:
    if not a or len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} runs are no pairs")
