"""Fewest requests at the worker that answers, fewest waiting prompt tokens at the one that
prefills; or one that holds more of the prompt and is not much busier."""

from collections.abc import Sequence

from splitserve.router.policy import split
from splitserve.router.policy.base import Observation, Placement, RequestView, WorkerView
from splitserve.router.policy.turns import Turns


class LeastLoaded:
    def __init__(self) -> None:
        self._turns = Turns()

    def place(
        self, request: RequestView, workers: Sequence[WorkerView], now: float
    ) -> Placement | None:
        del now
        choice = choose(request, workers, self._turns)
        return None if choice is None else split.take(choice, self._turns)

    def observed(self, observation: Observation) -> None:
        """What is open and what is held is all it goes by."""


def choose(
    request: RequestView, workers: Sequence[WorkerView], turns: Turns
) -> split.Choice | None:
    """See ``split.choose``."""
    return split.choose(request, workers, turns, answer_cost=requests, prompt_cost=_prompt_tokens)


def requests(worker: WorkerView) -> int:
    """Open there. Own requests are also in the worker's report, later; other gateways' are only
    there."""
    return max(worker.in_flight, worker.running + worker.waiting)


def _prompt_tokens(worker: WorkerView) -> int:
    return worker.waiting_tokens
