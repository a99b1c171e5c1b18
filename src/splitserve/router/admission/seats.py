"""How many requests a worker has seats for, as far as its refusals tell."""

from typing import Final

from splitserve.ids import WorkerId

BELIEVED_S: Final = 1.0
"""How long a refusal counts. Then one more request is tried: blocks may have been the reason."""


class LearnedSeats:
    """A worker that refused with ``n`` requests open there is not given more than ``n``."""

    def __init__(self) -> None:
        self._limits: dict[WorkerId, tuple[int, float]] = {}

    def refused(self, worker: WorkerId, occupied: int, now: float) -> None:
        """``occupied`` without the refused one. Nothing is learned from a worker that is empty."""
        if occupied > 0:
            self._limits[worker] = (occupied, now + BELIEVED_S)

    def limit(self, worker: WorkerId, now: float) -> int | None:
        limit, until = self._limits.get(worker, (0, now))
        return limit if now < until else None
