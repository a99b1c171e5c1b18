"""Metrics cheap enough for every token, read by a Prometheus registry.

prometheus_client's own objects take a lock and build label tuples at each call. These are for one
thread (an event loop); a reader on another thread may see a sum without its count, never a crash.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

LATENCY_BUCKETS_S: Final = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds in seconds that serve both gaps between tokens and waits for the first."""


class Histogram(Collector):
    """``buckets`` are upper bounds, inclusive and ascending; the last bucket is open."""

    def __init__(self, name: str, documentation: str, buckets: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = tuple(buckets)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self._counts)

    def collect(self) -> Iterable[HistogramMetricFamily]:
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        family = HistogramMetricFamily(self._name, self._documentation)
        family.add_metric([], buckets, self._sum)
        yield family


class Counter(Collector):
    """One number for each combination of label values. ``name`` is without ``_total``."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = ()) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = tuple(labels)
        self._values: dict[tuple[str, ...], float] = {}

    def add(self, *labels: str, amount: float = 1.0) -> None:
        """``labels`` are the values, in the order of the names given at construction."""
        if len(labels) != len(self._labels):
            raise ValueError(f"{self._name} has labels {self._labels}, not {labels}")
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0.0)

    def collect(self) -> Iterable[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        yield family
