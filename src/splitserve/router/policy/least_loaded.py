"""Fewest requests at the worker that answers, fewest waiting prompt tokens at the one that
prefills."""

from collections.abc import Sequence

from splitserve.router.policy import split
from splitserve.router.policy.base import Placement, RequestView, WorkerView
from splitserve.router.policy.turns import Turns


class LeastLoaded:
    def __init__(self) -> None:
        self._turns = Turns()

    def place(
        self, request: RequestView, workers: Sequence[WorkerView], now: float
    ) -> Placement | None:
        del now
        return split.place(
            request, workers, self._turns, answer_cost=_requests, prompt_cost=_prompt_tokens
        )


def _requests(worker: WorkerView) -> int:
    """Own requests are also in the worker's report, later; other gateways' are only there."""
    return max(worker.in_flight, worker.running + worker.waiting)


def _prompt_tokens(worker: WorkerView) -> int:
    return worker.waiting_tokens
