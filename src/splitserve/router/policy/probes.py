"""When to do what seems dearer, so that both ways stay measured.

A way that is never taken is never measured again, however wrong its last measurements were. So
every so many requests that could go the other way at little cost do. What is lost is bounded by
their share and by what little cost means, which the caller says.
"""

from typing import Final

EARLY_EVERY: Final = 4
"""While one of the ways is not known at all."""

EVERY: Final = 32


class Probes:
    def __init__(self) -> None:
        self._passed = {True: 0, False: 0}

    def due(self, whole: bool, *, cheap: bool, known: bool) -> bool:
        """Whether a request that would be computed ``whole``, or else split, should go the other
        way. ``cheap``: it could at little cost. ``known``: both ways are."""
        self._passed[whole] = 0
        if not cheap:
            return False
        self._passed[not whole] += 1
        if self._passed[not whole] < (EVERY if known else EARLY_EVERY):
            return False
        self._passed[not whole] = 0
        return True
