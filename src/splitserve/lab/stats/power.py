"""How much to measure: pairs for an effect, requests for a rare event."""

import math

from splitserve.lab.stats.distributions import shifted_t_below, t_quantile

MOST_PAIRS = 10_000


def power(pairs: int, effect: float, sd: float, alpha: float = 0.05) -> float:
    """Chance that the two-sided paired t test sees ``effect``, in the direction it has.

    ``effect`` and ``sd`` on one scale (logarithms for ratios); exact, by the noncentral t. 0 below
    two pairs; 1 when pairs do not vary at all. ValueError when ``sd`` is negative.
    """
    if sd < 0:
        raise ValueError("a deviation is not negative")
    if pairs < 2 or effect == 0:
        return 0.0 if pairs < 2 else alpha / 2
    if sd == 0:
        return 1.0
    shift = abs(effect) * math.sqrt(pairs) / sd
    # Far outside, where the series behind the noncentral t no longer converges.
    if shift > 35:
        return 1.0
    critical = t_quantile(1 - alpha / 2, pairs - 1)
    return 1 - shifted_t_below(critical, pairs - 1, shift)


def pairs_needed(
    effect: float, sd: float, *, alpha: float = 0.05, wanted: float = 0.8
) -> int | None:
    """The fewest pairs, three or more, with at least ``wanted`` power.

    ``sd`` comes from the A/A pairs. None when ``MOST_PAIRS`` are not enough.
    """
    low, high = 3, MOST_PAIRS
    if power(high, effect, sd, alpha) < wanted:
        return None
    while low < high:
        middle = (low + high) // 2
        enough = power(middle, effect, sd, alpha) >= wanted
        low, high = (low, middle) if enough else (middle + 1, high)
    return low


def requests_needed(share: float, confidence: float = 0.95) -> int:
    """So many requests without an event show that its share is at most ``share`` (one-sided).

    ValueError outside (0, 1).
    """
    if not 0 < share < 1:
        raise ValueError(f"{share} is no share to be shown")
    return math.ceil(math.log(1 - confidence) / math.log1p(-share))
