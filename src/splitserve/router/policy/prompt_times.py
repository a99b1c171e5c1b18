"""Seconds until an answer can run on, for both ways to compute its prompt, from those before.

What was cached took no time to compute, and what lay at decode was not moved.
"""

from dataclasses import dataclass

from splitserve.ids import WorkerId
from splitserve.router.policy.base import Observation
from splitserve.router.policy.curves import Curves


@dataclass(frozen=True, slots=True)
class WholeTime:
    """One worker does it all. ``compute_s`` is the part of ``total_s`` that the prompt itself
    takes, once it is its turn."""

    total_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class SplitTime:
    """``queue_s``: prompts before it, and what it waits even where none are known of. ``rest_s``:
    the grant and the messages."""

    queue_s: float
    prefill_s: float
    exposed_s: float
    rest_s: float

    @property
    def total_s(self) -> float:
        return self.queue_s + self.prefill_s + self.exposed_s + self.rest_s


class PromptTimes:
    """Learns from placements that carry an estimate: of the others it is not said what they had
    to wait for."""

    def __init__(self) -> None:
        self._whole = Curves()
        self._queue = Curves()
        self._prefill = Curves()
        self._exposed = Curves()
        self._rest = Curves()

    def observed(self, seen: Observation) -> None:
        placement = seen.placement
        if placement.estimate is None:
            return
        if placement.prefill is None:
            # Tokens that wait take their time as the prompt's own do.
            tokens = seen.computed_tokens + placement.estimate.ahead_tokens
            self._whole.add(placement.decode, tokens, seen.took_s)
            return
        self._observed_split(placement.prefill, placement.estimate.ahead_tokens, seen)

    def _observed_split(self, worker: WorkerId, ahead_tokens: int, seen: Observation) -> None:
        moved = seen.moved_tokens
        known_s = seen.queue_s + seen.prefill_s + seen.exposed_s
        self._prefill.add(worker, seen.computed_tokens, seen.prefill_s)
        self._exposed.add(worker, moved, seen.exposed_s)
        self._rest.add(worker, moved, seen.took_s - known_s)
        prefill = self._prefill.of(worker)
        ahead_s = 0.0 if prefill is None else ahead_tokens * prefill.pace
        self._queue.add(worker, 0, seen.queue_s - ahead_s)

    def whole(self, worker: WorkerId, tokens: int, ahead_tokens: int) -> WholeTime | None:
        """``tokens`` are to be computed. None while too little is known."""
        line = self._whole.of(worker)
        if line is None:
            return None
        return WholeTime(line.at(tokens + ahead_tokens), line.at(tokens))

    def split(
        self, worker: WorkerId, tokens: int, moved_tokens: int, ahead_tokens: int
    ) -> SplitTime | None:
        """``worker`` computes ``tokens``, ``moved_tokens`` go to decode. None while too little is
        known."""
        queue, prefill = self._queue.of(worker), self._prefill.of(worker)
        exposed, rest = self._exposed.of(worker), self._rest.of(worker)
        if queue is None or prefill is None or exposed is None or rest is None:
            return None
        return SplitTime(
            queue.at(0) + ahead_tokens * prefill.pace,
            prefill.at(tokens),
            exposed.at(moved_tokens),
            rest.at(moved_tokens),
        )
