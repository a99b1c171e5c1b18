"""Choosing one of several workers that are equally good: whoever waited longest."""

from collections.abc import Callable, Sequence
from itertools import count

from splitserve.ids import WorkerId
from splitserve.router.policy.base import WorkerView

Cost = Callable[[WorkerView], int]


class Turns:
    """Remembers when each worker was last chosen, so that ties go round and not by name."""

    def __init__(self) -> None:
        self._chosen: dict[WorkerId, int] = {}
        self._serial = count()

    def cheapest(self, workers: Sequence[WorkerView], cost: Cost) -> WorkerView:
        """The least ``cost``; among equals the one chosen longest ago. ``workers`` not empty."""
        best = min(workers, key=lambda w: (cost(w), self._chosen.get(w.worker, -1)))
        self._chosen[best.worker] = next(self._serial)
        return best
