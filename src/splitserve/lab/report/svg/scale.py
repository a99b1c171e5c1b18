"""From values to pixels, and where the ticks go."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

TICKS: Final = 5
ROOM: Final = 0.03
"""Beside the outermost values, as a share of the span."""

LEAST: Final = 1e-9
"""A span that is smaller, against its values, is none."""

GREATEST: Final = 1e100
"""What is beyond has no place in a plot: shown at the border, as a failure is."""


@dataclass(frozen=True, slots=True)
class Scale:
    """``low`` < ``high`` on the values' side, ``start`` and ``end`` in pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of ``value``; values outside stand at the border."""
        inside = min(max(value, self.low), self.high)
        part = (inside - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """About five round values inside."""
        step = _step((self.high - self.low) / TICKS)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


def spanning(values: Iterable[float], start: float, end: float, *also: float) -> Scale:
    """A scale that shows every finite one of ``values`` and all of ``also``.

    Beside the outermost of ``values`` there is a little room; an end that is one of ``also`` stays.
    """
    finite = [v for v in (*values, *also) if abs(v) < GREATEST]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    # A difference that floats cannot divide is no difference.
    if high - low <= LEAST * max(LEAST, abs(low), abs(high)):
        reach = abs(low) / 2 if abs(low) > LEAST else 0.5
        low, high = low - reach, high + reach
    room = ROOM * (high - low)
    return Scale(
        low if low in also else low - room, high if high in also else high + room, start, end
    )


def drawable(band: tuple[float, float] | None) -> tuple[float, float] | None:
    """A band without ends would cover all, as if every pair were noise."""
    return band if band is not None and all(map(math.isfinite, band)) else None


def ratio_ticks(scale: Scale) -> list[tuple[float, str]]:
    """Places and labels on a scale of logarithms, labelled as ratios."""
    low, high = (math.exp(min(max(end, -300), 300)) for end in (scale.low, scale.high))
    if high / low < 1 + LEAST:
        return []
    if high / low > 3:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if len(powers) <= TICKS else (1,)
        shown = [m * 10.0**k for k in powers for m in steps if low <= m * 10.0**k <= high]
        shown = shown[:: max(1, len(shown) // (2 * TICKS))]
    else:
        shown = Scale(low, high, 0, 1).ticks()
    return [(math.log(value), f"{value:.6g}") for value in shown if value > 0]


def thinned(values: Sequence[T], most: int) -> list[T]:
    """At most about ``most`` of ``values``, evenly taken, first and last among them."""
    if len(values) <= most:
        return list(values)
    step = math.ceil(len(values) / most)
    return [*values[:-1:step], values[-1]]


def _step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next((m * power for m in (1, 2, 5) if m * power >= rough), 10 * power)
