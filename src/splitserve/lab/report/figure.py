"""A number with what makes it one: unit, n, method, interval; or the reason why there is none."""

import math
from dataclasses import dataclass

from splitserve.lab.stats.interval import Interval

NOT_MEASURED = "not measured"
NO_BOUND = "no bound (n too small)"


@dataclass(frozen=True, slots=True)
class Figure:
    """``value`` in ``unit``: None where it is not known, infinite where failures reach it.

    ``n`` counts what it rests on and ``of`` names them, as in 8 "runs of 200 requests".
    ``refused`` is the reason where a sample exists and is too small.
    """

    value: float | None
    unit: str
    n: int = 0
    of: str = ""
    method: str = ""
    interval: Interval | None = None
    failures: int = 0
    refused: str = ""

    @property
    def text(self) -> str:
        """The number, or why there is none."""
        if self.refused:
            return f"refused ({self.refused})"
        if self.value is None:
            return NOT_MEASURED
        if math.isinf(self.value):
            failed = f" ({self.failures} failures)" if self.failures else " (failures)"
            return "∞" + failed
        return number(self.value) + _spaced(self.unit)

    @property
    def detail(self) -> str:
        """Interval, n and method in one line; empty where nothing was measured."""
        if self.refused:
            return ""
        parts = [self._bounds] if self._bounds else []
        if self.n:
            parts.append(f"n = {self.n} {self.of}".rstrip())
        if self.n and self.method:
            parts.append(self.method)
        return "; ".join(parts)

    @property
    def brief(self) -> str:
        """The number and its interval, for a sentence."""
        return f"{self.text}, {self._bounds}" if self._bounds else self.text

    @property
    def _bounds(self) -> str:
        if self.interval is None or self.value is None:
            return ""
        low, high = self.interval.low, self.interval.high
        # A ratio's interval that says nothing begins at 0, not below it.
        if low <= 0 and math.isinf(high) and not math.isinf(self.value):
            return NO_BOUND
        return f"[{number(low)}, {number(high)}] {100 * self.interval.confidence:g} %"

    def __str__(self) -> str:
        """All of it."""
        return f"{self.text} ({self.detail})" if self.detail else self.text


def number(value: float) -> str:
    """Four digits, without an exponent where people read one badly."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-4:
        return f"{value:.3g}"
    return f"{value:.0f}" if size >= 1000 else f"{value:.4g}"


def _spaced(unit: str) -> str:
    return f" {unit}" if unit else ""
