"""Figures over runs: the run is the unit, and what is too small for a quantile is refused."""

import math
from collections.abc import Sequence
from typing import Final

from splitserve.lab.report.figure import Figure
from splitserve.lab.stats.interval import Interval, mean, mean_interval, typical_interval
from splitserve.lab.stats.paired import Paired, Scale, differences
from splitserve.lab.stats.quantile import inverse_cdf, smallest_sample
from splitserve.lab.stats.shares import Count, pooled, wilson

TYPICAL: Final = "typical run"
AVERAGE: Final = "mean of runs"
POOLED: Final = "pooled, Wilson"
RATIO: Final = "paired, t of log ratios"
DIFFERENCE: Final = "paired, t of differences"
BY_ORDER: Final = "paired, sign test"
"""Names of methods; what they are stands in the report's definitions."""


def quantile_of_runs(
    samples: Sequence[Sequence[float]], p: float, unit: str, scale: float = 1.0
) -> Figure:
    """Quantile ``p`` of each run's sample, and the typical run's; failures are infinite.

    Refused when a run is too small for ``p``. Values are shown times ``scale``, in ``unit``.
    """
    sizes = [len(sample) for sample in samples]
    if not sizes or min(sizes) == 0:
        return Figure(None, unit)
    needed, least = smallest_sample(p), min(sizes)
    if least < needed:
        return Figure(
            None, unit, least, "a run", refused=f"n too small: {least} of {needed} needed"
        )
    failures = sum(math.isinf(value) for sample in samples for value in sample)
    of = f"runs of {_span(sizes)}"
    return typical_run([inverse_cdf(s, p) for s in samples], unit, scale, of, failures)


def typical_run(
    values: Sequence[float], unit: str, scale: float = 1.0, of: str = "runs", failures: int = 0
) -> Figure:
    """The typical one of ``values``, one per run."""
    if not values:
        return Figure(None, unit)
    scaled = [scale * value for value in values]
    if min(scaled) <= 0:
        return average(scaled, unit, of=of)
    point = math.exp(mean([math.log(v) for v in scaled])) if math.inf not in scaled else math.inf
    interval = typical_interval(scaled) if len(scaled) > 1 else None
    return Figure(point, unit, len(scaled), of, TYPICAL, interval, failures)


def average(values: Sequence[float], unit: str, of: str = "runs") -> Figure:
    """The mean of one value per run."""
    if not values:
        return Figure(None, unit)
    point = math.inf if math.inf in values else mean(values)
    interval = mean_interval(values) if len(values) > 1 else None
    return Figure(point, unit, len(values), of, AVERAGE, interval)


def share(counts: Sequence[Count | None], of: str = "requests") -> Figure:
    """Hits of all, in percent, one count per run, None for a run without any. The interval
    describes a share; bounds that decide go over runs too."""
    known = [count for count in counts if count is not None]
    if not known:
        return Figure(None, "%")
    whole = pooled(known)
    bounds = wilson(whole)
    where = f"{of} in {len(known)} run{'s' * (len(known) > 1)}"
    return Figure(
        100 * whole.share, "%", whole.total, where, POOLED, _times(bounds.low, bounds.high)
    )


def effect(paired: Paired | None, confidence: float = 0.95) -> Figure:
    """B against A: a ratio, or a difference in percentage points."""
    if paired is None:
        return Figure(None, "")
    if paired.scale is Scale.RATIO:
        interval, point, unit, method = paired.ratio_interval(confidence), paired.ratio, "", RATIO
    else:
        plain = paired.interval(confidence)
        interval = _times(plain.low, plain.high, confidence)
        point, unit, method = 100 * paired.point, "pp", DIFFERENCE
    method = BY_ORDER if paired.by_order else method
    return Figure(point, unit, paired.pairs, "pairs", method, interval)


def shift(before: Sequence[float], after: Sequence[float], scale: float, unit: str) -> Figure:
    """What pairs of finite values differ by, after minus before, times ``scale`` in ``unit``."""
    if not before:
        return Figure(None, unit)
    paired = differences([scale * x for x in before], [scale * x for x in after])
    method = BY_ORDER if paired.by_order else DIFFERENCE
    return Figure(paired.point, unit, paired.pairs, "pairs", method, paired.interval())


def _times(low: float, high: float, confidence: float = 0.95) -> Interval:
    return Interval(100 * low, 100 * high, confidence)


def _span(sizes: Sequence[int]) -> str:
    low, high = min(sizes), max(sizes)
    return f"{low}" if low == high else f"{low} to {high}"
