"""Shares and rare events: errors, failed transfers, requests that met their limits."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from splitserve.lab.stats.distributions import beta_quantile, binomial_below, normal_quantile
from splitserve.lab.stats.interval import Interval, mean_interval


@dataclass(frozen=True, slots=True)
class Count:
    """``hits`` of ``total``. ValueError when that cannot be."""

    hits: int
    total: int

    def __post_init__(self) -> None:
        """Refuse what is no count."""
        if not 0 <= self.hits <= self.total or self.total < 1:
            raise ValueError(f"{self.hits} of {self.total} is no count")

    @property
    def share(self) -> float:
        """hits / total."""
        return self.hits / self.total


def pooled(counts: Sequence[Count]) -> Count:
    """All runs as one. ValueError when there are none."""
    return Count(sum(c.hits for c in counts), sum(c.total for c in counts))


def wilson(count: Count, confidence: float = 0.95) -> Interval:
    """Wilson's score interval, two-sided."""
    n, share = count.total, count.share
    z = normal_quantile(0.5 + confidence / 2)
    middle = share + z * z / (2 * n)
    reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if count.hits == 0 else (middle - reach) / scale
    high = 1.0 if count.hits == n else (middle + reach) / scale
    return Interval(low, high, confidence)


def clopper_pearson(count: Count, confidence: float = 0.95) -> Interval:
    """The exact binomial interval, two-sided: never covers less than it says."""
    half, hits, misses = (1 - confidence) / 2, count.hits, count.total - count.hits
    low = 0.0 if hits == 0 else beta_quantile(half, hits, misses + 1)
    high = 1.0 if misses == 0 else beta_quantile(1 - half, hits + 1, misses)
    return Interval(low, high, confidence)


def difference(
    a: Count,
    b: Count,
    confidence: float = 0.95,
    limits: Callable[[Count, float], Interval] = wilson,
) -> Interval:
    """Newcombe's interval of share B - share A (1998, method 10): two-sided, "square and add".

    With ``limits`` = ``clopper_pearson`` it is a little wider; Wilson's own upper bound for no hit
    at all is exceeded in 7 of 100 cases instead of 5.
    """
    first, second = limits(a, confidence), limits(b, confidence)
    gap = b.share - a.share
    down = math.hypot(b.share - second.low, first.high - a.share)
    up = math.hypot(second.high - b.share, a.share - first.low)
    return Interval(max(-1.0, gap - down), min(1.0, gap + up), confidence)


def share_upper(runs: Sequence[Count], confidence: float = 0.95) -> float:
    """One-sided upper bound of a share: over requests and over runs, the wider one counts.

    Errors come in bursts (one dead agent kills a batch), so requests alone promise too much; with
    few runs that all had none, runs alone would promise zero.
    """
    two_sided = 2 * confidence - 1
    exact = clopper_pearson(pooled(runs), two_sided).high
    return max(exact, _run_upper([c.share for c in runs], two_sided))


def share_lower(runs: Sequence[Count], confidence: float = 0.95) -> float:
    """One-sided lower bound of a share; see ``share_upper``."""
    return 1 - share_upper([Count(c.total - c.hits, c.total) for c in runs], confidence)


def difference_upper(a: Sequence[Count], b: Sequence[Count], confidence: float = 0.95) -> float:
    """One-sided upper bound of share B - share A over paired runs; the wider view counts.

    ValueError when the runs are no pairs.
    """
    two_sided = 2 * confidence - 1
    gaps = [y.share - x.share for x, y in zip(a, b, strict=True)]
    exact = difference(pooled(a), pooled(b), two_sided, clopper_pearson).high
    return max(exact, _run_upper(gaps, two_sided))


def surely_more(b: Count, a: Count | None, margin: float, confidence: float = 0.95) -> bool:
    """Whether the share of ``b`` is above that of ``a`` by more than ``margin``, and not by chance.
    Without ``a`` it is compared with zero."""
    beyond = wilson(b, confidence) if a is None else difference(a, b, confidence)
    return beyond.low > margin


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p value for the same requests in both arms.

    ``only_a`` of them failed in A alone, ``only_b`` in B alone; those that agree say nothing.
    """
    trials = only_a + only_b
    return min(1.0, 2 * binomial_below(min(only_a, only_b), trials, 0.5)) if trials else 1.0


def _run_upper(values: Sequence[float], two_sided: float) -> float:
    # One run has no spread: the bound over requests has to do.
    return mean_interval(values, two_sided).high if len(values) > 1 else -math.inf
