"""Inside one run: where warm-up ends, and an interval that knows that neighbours are alike."""

import math
from collections.abc import Sequence
from statistics import variance

from splitserve.lab.stats.distributions import t_quantile
from splitserve.lab.stats.interval import Interval, mean
from splitserve.lab.stats.quantile import inverse_cdf

BATCH = 5
SECTIONS = 4
"""Of half a window."""


def warmup_end(values: Sequence[float]) -> int | None:
    """MSER-5 (White 1997): how many first values to leave out, a multiple of five.

    ``values`` in order of intended time. None when the answer lies in the second half: the run was
    too short to have settled. Infinite values count as the greatest finite one, since a failure
    during warm-up says "not settled" and not "infinitely far from it".
    """
    top = max((v for v in values if math.isfinite(v)), default=0.0)
    finite = [min(v, top) for v in values]
    means = [mean(finite[i : i + BATCH]) for i in range(0, len(finite) - BATCH + 1, BATCH)]
    best, least = 0, math.inf
    # The last batches are left out of the search: two of them always agree by chance.
    for cut in range(max(0, len(means) - BATCH)):
        rest = means[cut:]
        level = mean(rest)
        error = math.fsum((x - level) ** 2 for x in rest) / len(rest) ** 2
        if error < least:
            best, least = cut, error
    return None if 2 * best > len(means) or len(means) <= BATCH else best * BATCH


def still_falls(values: Sequence[float], confidence: float = 0.995) -> bool:
    """Whether the first half lies above the second by more than chance: a warm-up that lasts.

    ``values`` in order of time. Means of four sections a half are compared, since neighbours are
    alike. MSER alone will not do for this: of runs that are stationary but wait in a queue (M/M/1
    at 0.8) it looks past their middle in a quarter. A level that rises is no warm-up but a result:
    a server that is overrun.
    """
    length = len(values) // (2 * SECTIONS)
    if length == 0:
        return False
    top = max((v for v in values if math.isfinite(v)), default=0.0)
    finite = [min(v, top) for v in values]
    means = [mean(finite[i * length : (i + 1) * length]) for i in range(2 * SECTIONS)]
    first, second = means[:SECTIONS], means[SECTIONS:]
    spread = math.sqrt((variance(first) + variance(second)) / SECTIONS)
    return mean(first) - mean(second) > t_quantile(confidence, 2 * (SECTIONS - 1)) * spread


def sectioned(
    values: Sequence[float], p: float, sections: int = 10, confidence: float = 0.95
) -> Interval | None:
    """Interval of quantile ``p`` of one run by sectioning (Nakayama 2014); description only.

    ``values`` in order of time, cut into ``sections`` contiguous parts; their spread is taken about
    the whole run's quantile. None when a part cannot hold the quantile or one is infinite.
    """
    length = len(values) // sections
    if sections < 2 or length * (1 - p) < 1:
        return None
    whole = inverse_cdf(values, p)
    parts = [inverse_cdf(values[i * length : (i + 1) * length], p) for i in range(sections)]
    if not all(map(math.isfinite, (whole, *parts))):
        return None
    spread = math.sqrt(math.fsum((q - whole) ** 2 for q in parts) / (sections - 1))
    reach = t_quantile(0.5 + confidence / 2, sections - 1) * spread / math.sqrt(sections)
    return Interval(whole - reach, whole + reach, confidence)
