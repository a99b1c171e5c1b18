"""Whether a study may be trusted: the noise floor of A/A pairs, and drift over the run order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from splitserve.lab.stats.distributions import t_below, t_quantile
from splitserve.lab.stats.interval import Interval, deviation, mean
from splitserve.lab.stats.paired import Paired

FEWEST = 3
"""Second starts that have an interval of their own."""


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """What the same configuration differs from itself.

    ``sd`` per pair (None when it cannot be said) plans the study. ``clean`` is False when the
    interval leaves out zero *and* the estimate is beyond the smallest effect of interest, or when
    the estimate is infinite: then the procedure makes differences of its own and the study is void.
    """

    point: float
    interval: Interval
    sd: float | None
    clean: bool


def noise_floor(same: Paired, smallest_effect: float, confidence: float = 0.95) -> NoiseFloor:
    """Of A/A pairs; ``smallest_effect`` > 0 on their scale (logarithms for ratios)."""
    interval, point = same.interval(confidence), same.point
    beyond = abs(point) > smallest_effect
    clean = math.isfinite(point) and (not beyond or interval.holds(0.0))
    return NoiseFloor(point, interval, same.sd, clean)


def within_noise(
    again: Paired, smallest_effect: float, same: Paired | None, confidence: float = 0.95
) -> bool:
    """Whether a second start of a deployment agrees with the first: d in the noise floor.

    The same question as for A/A pairs. Where there are too few for an interval, each has to be
    below the smallest effect or within what ``same``, the A/A pairs, differ by chance; a second
    start is the difference of two pairs, and spreads as two do.
    """
    if again.pairs >= FEWEST:
        return noise_floor(again, smallest_effect, confidence).clean
    reach = 0.0
    if same is not None and same.sd is not None:
        reach = math.sqrt(2) * same.sd * t_quantile(0.5 + confidence / 2, same.pairs - 1)
    return all(abs(d) <= max(smallest_effect, reach) for d in again.differences)


@dataclass(frozen=True, slots=True)
class Drift:
    """Slope of d per unit of position. ``p`` two-sided, 1 when nothing can be said."""

    slope: float
    p: float
    flagged: bool


def drift(effect: Paired, positions: Sequence[float], alpha: float = 0.01) -> Drift:
    """Regression of each pair's d on when it ran; ``positions``: one number per pair.

    With infinite d on the ranks of d instead: order is all there is then. A pair that says nothing
    (NaN) stands aside. Fewer than four pairs have no drift that could be told from noise.
    ValueError when lengths differ.
    """
    told = [(x, d) for x, d in zip(positions, effect.differences, strict=True) if not math.isnan(d)]
    if len(told) < 4:
        return Drift(0.0, 1.0, flagged=False)
    x, y = [x for x, _ in told], [d for _, d in told]
    slope, p = _slope(x, y if all(map(math.isfinite, y)) else _ranks(y))
    return Drift(slope, p, p <= alpha)


def _slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Least squares: the slope and its two-sided p value."""
    n, middle, level = len(x), mean(x), mean(y)
    around = math.fsum((a - middle) ** 2 for a in x)
    if around == 0 or deviation(y) == 0:
        return 0.0, 1.0
    slope = math.fsum((a - middle) * (b - level) for a, b in zip(x, y, strict=True)) / around
    left = math.fsum((b - level - slope * (a - middle)) ** 2 for a, b in zip(x, y, strict=True))
    error = math.sqrt(left / (n - 2) / around)
    return slope, 2 * t_below(-abs(slope) / error, n - 2) if error > 0 else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(v) + (ordered.count(v) + 1) / 2 for v in values]
