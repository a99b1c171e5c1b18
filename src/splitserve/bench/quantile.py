"""Quantiles of a sample."""

import math
from collections.abc import Sequence


def quantile(values: Sequence[float], q: float) -> float:
    """The inverse of the empirical distribution function: always a value that occurred.

    ``q`` in (0, 1]. NaN for an empty sample.
    """
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]
