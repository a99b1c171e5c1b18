"""Quantiles by the inverse of the empirical distribution function, with failures at infinity.

Type 1 of Hyndman and Fan: the ceil(n p)-th smallest, always a value that occurred. A sample that is
too small for a quantile says so instead of giving its maximum under another name.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from splitserve.lab.stats.distributions import binomial_below
from splitserve.lab.stats.interval import Interval

TAIL: Final = 10
"""So many values must be expected above a quantile before a verdict may rest on it."""


@dataclass(frozen=True, slots=True)
class Quantile:
    """Quantile ``p`` of ``n`` values, ``failures`` of which are infinite.

    ``value`` is None for an empty sample, infinite when failures reach down to it. ``carried`` says
    whether the sample is large enough for a verdict. ``interval`` is the order-statistic interval,
    None where the sample has none; it takes values as independent, which requests of one run are
    not: it describes a run and decides nothing.
    """

    p: float
    value: float | None
    n: int
    failures: int
    carried: bool
    interval: Interval | None

    def text(self, unit: str = "") -> str:
        """The value as printed in tables: ``∞ (3 failures)``, ``none``, or a number."""
        if self.value is None:
            return "none"
        if math.isinf(self.value):
            return f"∞ ({self.failures} failures)"
        return f"{self.value:.6g}{unit}"


def rank(n: int, p: float) -> int:
    """Which of ``n`` sorted values, counted from 1, is quantile ``p`` in (0, 1].

    Exact in fractions: in floats 0.07 x 100 is a little above 7. ValueError outside these ranges.
    """
    if n < 1 or not 0 < p <= 1:
        raise ValueError(f"no quantile {p} of {n} values")
    return max(1, math.ceil(Fraction(p).limit_denominator(1_000_000) * n))


def inverse_cdf(values: Sequence[float], p: float) -> float:
    """Quantile ``p`` of a sample that is not empty. ValueError for an empty one and for NaN."""
    return _sorted(values)[rank(len(values), p) - 1]


def quantile(values: Sequence[float], p: float, confidence: float = 0.95) -> Quantile:
    """Quantile ``p`` of all values, ``math.inf`` for failures. ValueError for NaN."""
    ordered, n = _sorted(values), len(values)
    return Quantile(
        p=p,
        value=ordered[rank(n, p) - 1] if n else None,
        n=n,
        failures=ordered.count(math.inf),
        carried=n >= smallest_sample(p),
        interval=_interval(ordered, p, confidence),
    )


def linear(values: Sequence[float], p: float) -> float | None:
    """Type 7, between two neighbours: only to compare with tools that use it. None when empty."""
    if not values:
        return None
    ordered, place = _sorted(values), (len(values) - 1) * p
    below = math.floor(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    part = place - below
    if part == 0 or low == high:
        return low
    return math.inf if math.isinf(high) else low + part * (high - low)


def smallest_sample(p: float) -> int:
    """How many values quantile ``p`` < 1 needs before a verdict may rest on it."""
    tail = 1 - Fraction(p).limit_denominator(1_000_000)
    if tail <= 0:
        raise ValueError(f"no sample carries quantile {p}")
    return math.ceil(TAIL / tail)


def smallest_bounded(p: float, confidence: float = 0.95) -> int:
    """Below so many values the order-statistic interval of ``p`` has no upper end."""
    return math.ceil(math.log((1 - confidence) / 2) / math.log(p))


def interval_ranks(n: int, p: float, confidence: float = 0.95) -> tuple[int, int] | None:
    """Ranks r < s, from 1, whose values enclose quantile ``p``; None when there is no such pair.

    r is the largest with P(B <= r - 1) <= a/2, s the smallest with P(B >= s) <= a/2, where
    B ~ Bin(n, p) and a = 1 - ``confidence``.
    """
    half = (1 - confidence) / 2
    low = _smallest(n + 1, lambda hits: binomial_below(hits, n, p) > half)
    high = _smallest(n + 1, lambda hits: 1 - binomial_below(hits, n, p) <= half) + 1
    return (low, high) if low >= 1 and high <= n else None


def _interval(ordered: Sequence[float], p: float, confidence: float) -> Interval | None:
    ranks = interval_ranks(len(ordered), p, confidence) if ordered and p < 1 else None
    if ranks is None:
        return None
    return Interval(ordered[ranks[0] - 1], ordered[ranks[1] - 1], confidence)


def _smallest(end: int, true_from: Callable[[int], bool]) -> int:
    """The smallest number below ``end`` from which on ``true_from`` holds; else ``end``."""
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if true_from(middle) else (middle + 1, high)
    return low


def _sorted(values: Sequence[float]) -> list[float]:
    if any(map(math.isnan, values)):
        raise ValueError("NaN in a sample: a failure is infinite, an unknown value is left out")
    return sorted(values)
