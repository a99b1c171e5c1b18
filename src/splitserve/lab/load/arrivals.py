"""When requests are due. Pure and seeded: the same arguments give the same offsets everywhere.

Offsets are seconds from the window's start, ascending, in [0, duration). Nothing is rescaled to
hit a count: the number of arrivals in a window is random, as it is for users. ``describe_arrivals``
says what a draw came to.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from splitserve.errors import ConfigError


def poisson(rate: float, duration_s: float, seed: int) -> list[float]:
    """``rate`` requests per second, each independent of the others."""
    return gamma(rate, 1.0, duration_s, seed)


def gamma(rate: float, cv: float, duration_s: float, seed: int) -> list[float]:
    """Gaps with mean 1/``rate`` and coefficient of variation ``cv``; 1 is Poisson, more is bursty.

    ``cv`` changes the shape only: the mean rate stays.
    """
    _positive(rate=rate, cv=cv, duration_s=duration_s)
    stream = random.Random(f"arrivals-{seed}")
    shape = 1 / cv**2
    scale = 1 / (rate * shape)
    due, offsets = stream.gammavariate(shape, scale), []
    while due < duration_s:
        offsets.append(due)
        due += stream.gammavariate(shape, scale)
    return offsets


def ramp(first_rate: float, last_rate: float, duration_s: float, seed: int) -> list[float]:
    """A Poisson process whose rate goes in a straight line from the first to the last one."""
    _positive(duration_s=duration_s)
    if min(first_rate, last_rate) < 0 or first_rate + last_rate == 0:
        raise ConfigError("a ramp's rates must not be negative, nor both 0")
    stream = random.Random(f"ramp-{seed}")
    slope = (last_rate - first_rate) / duration_s
    whole = (first_rate + last_rate) / 2 * duration_s
    offsets, passed = [], stream.expovariate(1)
    while passed < whole:
        # Solves first_rate * t + slope * t^2 / 2 = passed in the form that is exact for slope 0.
        root = math.sqrt(max(0.0, first_rate**2 + 2 * slope * passed))
        offsets.append(min(2 * passed / (first_rate + root), math.nextafter(duration_s, 0)))
        passed += stream.expovariate(1)
    return offsets


def replayed(
    stamps_s: Sequence[float], *, factor: float = 1.0, tick_s: float = 0.0, seed: int = 0
) -> list[float]:
    """A trace's own arrivals from its first one on, times ``factor`` (2 is half the rate).

    ``tick_s`` is the resolution of the trace's clock: stamps that several requests share are spread
    evenly over one tick (seeded). Without it they leave as stamped, in bursts. Order is kept.
    """
    _positive(factor=factor)
    if list(stamps_s) != sorted(stamps_s):
        raise ConfigError("a trace's stamps must ascend")
    stream = random.Random(f"ties-{seed}")
    offsets: list[float] = []
    for stamp, count in sorted(Counter(stamps_s).items()):
        spread = [0.0] if count == 1 else sorted(stream.random() * tick_s for _ in range(count))
        offsets += [(stamp - stamps_s[0] + shift) * factor for shift in spread]
    return sorted(offsets)


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a set of arrivals came to. ``cv`` is NaN for fewer than two gaps."""

    count: int
    rate: float
    cv: float


def describe_arrivals(offsets: Sequence[float], duration_s: float) -> Delivered:
    """Rate over the window and coefficient of variation of the gaps."""
    gaps = [b - a for a, b in pairwise(offsets)]
    rate = len(offsets) / duration_s
    if len(gaps) < 2 or (mean := sum(gaps) / len(gaps)) == 0:
        return Delivered(len(offsets), rate, math.nan)
    variance = sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1)
    return Delivered(len(offsets), rate, math.sqrt(variance) / mean)


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"{name} must be greater than 0, not {value}")
