"""Placement seam: which worker takes a request. Pure: values and the time in, a value out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from splitserve.ids import WorkerId


@dataclass(frozen=True, slots=True)
class RequestView:
    """What a policy may know of a request."""

    prompt_tokens: int
    max_tokens: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What a policy may know of a worker.

    ``in_flight`` counts this router's own open requests there, ``running``/``waiting`` the
    worker's report. ``free_tokens`` is what its pool could take now (free and cached).
    ``linked`` are the prefill workers that may write into it. ``seats`` is how many requests it
    runs at once, None where it does not say. ``accepts`` is False while it has as much before it
    as it may have: nothing is sent there then.
    """

    worker: WorkerId
    role: str
    in_flight: int
    running: int
    waiting: int
    waiting_tokens: int
    free_tokens: int
    linked: tuple[WorkerId, ...] = ()
    seats: int | None = None
    accepts: bool = True


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a policy reckoned when it chose whether to split.

    ``ahead_tokens`` are prompt tokens that waited where the prompt is to be computed. ``whole_s``
    and ``split_s`` are seconds from the placement until the answer can run on, for both ways; None
    while too little was measured.
    """

    ahead_tokens: int
    whole_s: float | None
    split_s: float | None


@dataclass(frozen=True, slots=True)
class Placement:
    """``decode`` runs the answer; ``prefill`` computes the prompt, None for all in one place.

    ``reason`` is for people: it goes to the request's record. ``estimate`` is None where there was
    no choice between the two ways, or the policy does not weigh them.
    """

    decode: WorkerId
    prefill: WorkerId | None
    reason: str
    estimate: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What came of a placement. Seconds.

    ``took_s`` is from the placement until the answer could run on: its first token, after a split
    with the KV in place. ``queue_s``, ``prefill_s`` and ``exposed_s`` are the parts of it that a
    prefill worker tells (see PrefillDone), 0 where nothing was split.
    """

    placement: Placement
    prompt_tokens: int
    took_s: float
    queue_s: float = 0.0
    prefill_s: float = 0.0
    exposed_s: float = 0.0

    @property
    def predicted_s(self) -> float | None:
        """What was reckoned for ``took_s``."""
        estimate = self.placement.estimate
        if estimate is None:
            return None
        return estimate.whole_s if self.placement.prefill is None else estimate.split_s


class Policy(Protocol):
    def place(
        self, request: RequestView, workers: Sequence[WorkerView], now: float
    ) -> Placement | None:
        """Chooses among workers that may be used at all; None when none can take the request."""
        ...

    def observed(self, observation: Observation) -> None:
        """Of one of its own placements, at most once. Not of those that failed."""
        ...
