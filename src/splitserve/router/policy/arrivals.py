"""How many requests come in a second."""

from math import exp
from typing import Final

MEMORY_S: Final = 30.0
"""One that came so long ago counts 1/e. Until so much time has passed the rate is too low."""


class Arrivals:
    def __init__(self) -> None:
        self._count = 0.0
        self._at = 0.0

    def note(self, now: float) -> None:
        """One came."""
        self._count = self._faded(now) + 1
        self._at = now

    def per_s(self, now: float) -> float:
        return self._faded(now) / MEMORY_S

    def _faded(self, now: float) -> float:
        return self._count * exp(-max(0.0, now - self._at) / MEMORY_S)
