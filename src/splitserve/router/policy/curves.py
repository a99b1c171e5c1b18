"""How long something takes by its number of tokens, learnt while it happens.

A straight line with a base and a slope that are never negative, by least squares in which old
points fade and points far off are left out. Where one point after the other lies far off on
the same side, it is the law that has changed: those points begin a new line. Constant time and
memory for each point.
"""

from itertools import combinations
from math import log
from statistics import median
from typing import Final

from splitserve.ids import WorkerId

ENOUGH: Final = 8
"""Points before a line says anything, and far ones in a row before it begins anew. These are fitted
by medians, so that two wild ones among them (a worker's first prompts are often slow) do no
harm."""

MEMORY: Final = 32
"""A point counts 1/e once so many have come after it."""

_SPREAD_MEMORY: Final = 8
_FAR: Final = 3.0
"""Points more than so many times the usual distance off are left out."""

_NEAR: Final = 0.05
"""A distance that is always usual (0.05 is about 5%): or nothing could ever move a line that the
points lay on exactly."""

_LEAST_S: Final = 1e-4
"""Times are compared as if all took so much longer: ratios of next to nothing mean nothing."""

_ALIKE: Final = 0.02
"""Prompts that differ by less than this share of their mean tell nothing of the slope."""


class Line:
    """``seconds = base + slope * tokens``."""

    def __init__(self) -> None:
        self._first: list[tuple[float, float]] = []
        self._weight = self._x = self._y = self._xx = self._xy = 0.0
        self._base = self._slope = 0.0
        self._usual_s = 0.0
        self._spread = 0.0
        self._side = 0.0
        self._strays: list[tuple[float, float]] = []
        """The last points, as long as all were far off on one side."""

    @property
    def known(self) -> bool:
        """Whether there were enough points."""
        return self._weight > 0

    @property
    def pace(self) -> float:
        """Mean seconds per token, whatever the lengths were; 0 before it is known."""
        return self._y / self._x if self._x > 0 else 0.0

    def at(self, tokens: float) -> float:
        """Seconds; 0 before it is known."""
        return self._base + self._slope * tokens

    def add(self, tokens: float, seconds: float) -> None:
        """Both at least 0."""
        if self.known:
            self._learn(tokens, seconds)
            return
        self._first.append((tokens, seconds))
        if len(self._first) == ENOUGH:
            self._start()

    def _start(self) -> None:
        points, self._first, self._strays = self._first, [], []
        self._weight = self._x = self._y = self._xx = self._xy = 0.0
        self._base, self._slope = _by_medians(points)
        self._usual_s = median(y for _, y in points)
        self._spread = median(abs(self._off(x, y)) for x, y in points)
        for x, y in points:
            if abs(self._off(x, y)) <= self._far:
                self._count(x, y)
        self._fit()

    def _learn(self, x: float, y: float) -> None:
        off, far = self._off(x, y), self._far
        if abs(off) <= far:
            self._count(x, y)
            self._fit()
        self._note_stray(x, y, off if abs(off) > far else 0.0)
        if len(self._strays) < 2:  # times that vary more lie far off on both sides
            self._spread += (min(abs(off), far) - self._spread) / _SPREAD_MEMORY
        elif len(self._strays) == ENOUGH:
            self._first = self._strays
            self._start()

    @property
    def _far(self) -> float:
        return _FAR * max(self._spread, _NEAR)

    def _off(self, x: float, y: float) -> float:
        """How far off the line, as the logarithm of the ratio: times are wrong by shares."""
        return log((y + _LEAST_S) / (self.at(x) + _LEAST_S))

    def _note_stray(self, x: float, y: float, off: float) -> None:
        """``off`` is 0 where the point is not far."""
        if off * self._side <= 0:
            self._strays = []
        self._side = off
        if off:
            self._strays.append((x, y))

    def _count(self, x: float, y: float) -> None:
        """Long times vary more than short ones, so they weigh less."""
        keep = 1 - 1 / MEMORY
        weight = 1 / (self.at(x) + self._usual_s + _LEAST_S) ** 2
        self._weight = self._weight * keep + weight
        self._x = self._x * keep + weight * x
        self._y = self._y * keep + weight * y
        self._xx = self._xx * keep + weight * x * x
        self._xy = self._xy * keep + weight * x * y

    def _fit(self) -> None:
        x, y = self._x / self._weight, self._y / self._weight
        variance = self._xx / self._weight - x * x
        if variance <= (_ALIKE * x) ** 2:
            self._base, self._slope = _proportional(x, y)
            return
        slope = max(0.0, (self._xy / self._weight - x * y) / variance)
        base = y - slope * x
        if base < 0:
            base, slope = 0.0, self._xy / self._xx
        self._base, self._slope = base, slope


class Curves:
    """A line for each worker, and one of all for those not known yet."""

    def __init__(self) -> None:
        self._all = Line()
        self._own: dict[WorkerId, Line] = {}

    def add(self, worker: WorkerId, tokens: float, seconds: float) -> None:
        own = self._own.get(worker)
        if own is None:
            own = self._own[worker] = Line()
        for line in (own, self._all):
            line.add(tokens, max(0.0, seconds))

    def of(self, worker: WorkerId) -> Line | None:
        """None while nothing is known of any worker."""
        own = self._own.get(worker)
        if own is not None and own.known:
            return own
        return self._all if self._all.known else None


def _by_medians(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Base and slope by Theil and Sen: right while fewer than 29% of the points are wild."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x1 != x2]
    if not slopes:
        return _proportional(points[0][0], median(y for _, y in points))
    slope = max(0.0, median(slopes))
    return max(0.0, median(y - slope * x for x, y in points)), slope


def _proportional(x: float, y: float) -> tuple[float, float]:
    return (0.0, y / x) if x > 0 else (y, 0.0)
