"""An interval, and the t interval of a mean over runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from splitserve.lab.stats.distributions import t_quantile


@dataclass(frozen=True, slots=True)
class Interval:
    """``low`` <= unknown value <= ``high``, right in ``confidence`` of all studies.

    An end that the sample says nothing about is infinite.
    """

    low: float
    high: float
    confidence: float

    def holds(self, value: float) -> bool:
        """Whether ``value`` lies inside, ends included."""
        return self.low <= value <= self.high

    def exponentials(self) -> "Interval":
        """The interval of exp(value), for values that are logarithms."""
        return Interval(exponential(self.low), exponential(self.high), self.confidence)


def exponential(value: float) -> float:
    """exp, infinite where a float ends."""
    return math.inf if value > 700 else math.exp(value)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean of finite values. ValueError when there is nothing to average."""
    if not values:
        raise ValueError("no values")
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float:
    """The sample's standard deviation, n - 1 in the denominator. ValueError below two values."""
    if len(values) < 2:
        raise ValueError("a deviation needs two values")
    middle = mean(values)
    return math.sqrt(math.fsum((x - middle) ** 2 for x in values) / (len(values) - 1))


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Two-sided t interval of the mean of one value per run.

    One run has no spread to judge by and an infinite value no deviation: then an end is infinite.
    """
    if len(values) < 2:
        return Interval(-math.inf, math.inf, confidence)
    if not all(map(math.isfinite, values)):
        low = -math.inf if min(values) < math.inf else math.inf
        return Interval(low, math.inf, confidence)
    reach = t_quantile(0.5 + confidence / 2, len(values) - 1) * deviation(values)
    middle, reach = mean(values), reach / math.sqrt(len(values))
    return Interval(middle - reach, middle + reach, confidence)


def typical_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Two-sided interval of the typical run's time: one positive value per run.

    The t interval of the mean logarithm (times are skewed, their logarithms hardly), 0 to infinity
    where it has no ends. ValueError when a value is not positive.
    """
    if any(not x > 0 for x in values):
        raise ValueError("times must be positive")
    return mean_interval([math.log(x) for x in values], confidence).exponentials()


def typical_upper(values: Sequence[float], confidence: float = 0.95) -> float:
    """One-sided upper bound of the same."""
    return typical_interval(values, 2 * confidence - 1).high
