"""In turn, whatever the load, whoever holds the start of a prompt and had the turn before."""

from collections.abc import Sequence
from dataclasses import replace

from splitserve.router.policy import split
from splitserve.router.policy.base import (
    NO_TURN,
    NOTHING_HELD,
    Observation,
    Placement,
    RequestView,
    WorkerView,
)
from splitserve.router.policy.turns import Turns


class RoundRobin:
    def __init__(self) -> None:
        self._turns = Turns()

    def place(
        self, request: RequestView, workers: Sequence[WorkerView], now: float
    ) -> Placement | None:
        del now
        request = replace(request, held=NOTHING_HELD, last=NO_TURN)
        return split.place(request, workers, self._turns, answer_cost=_equal, prompt_cost=_equal)

    def observed(self, observation: Observation) -> None:
        """Turns do not depend on it."""


def _equal(worker: WorkerView) -> int:
    del worker
    return 0
