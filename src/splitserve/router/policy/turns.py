"""Choosing one of several workers that are equally good: whoever waited longest."""

from collections.abc import Callable, Sequence
from itertools import count

from splitserve.ids import WorkerId
from splitserve.router.policy.base import WorkerView

Cost = Callable[[WorkerView], int]


class Turns:
    """Remembers when each worker last had its turn, so that ties go round and not by name."""

    def __init__(self) -> None:
        self._taken: dict[WorkerId, int] = {}
        self._serial = count()

    def cheapest(self, workers: Sequence[WorkerView], cost: Cost) -> WorkerView:
        """The least ``cost``; among equals the one whose turn is longest ago. ``workers`` not
        empty."""
        return min(workers, key=lambda w: (cost(w), self._taken.get(w.worker, -1)))

    def take(self, worker: WorkerId) -> None:
        """It gets a request."""
        self._taken[worker] = next(self._serial)
