"""Placement seam: which worker takes a request. Pure: values and the time in, a value out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from splitserve.ids import Incarnation, WorkerId


@dataclass(frozen=True, slots=True)
class Held:
    """KV of the start of one prompt that workers are expected to have.

    ``tokens`` by worker, those without left out. ``fetched`` is the share of what decode holds and
    prefill does not that prefill fetches from there instead of computing it.
    """

    tokens: Mapping[WorkerId, int] = field(default_factory=dict)
    fetched: float = 0.0

    def at(self, worker: WorkerId) -> int:
        return self.tokens.get(worker, 0)

    def for_prefill(self, prefill: WorkerId, decode: WorkerId) -> int:
        """Tokens that ``prefill`` need not compute for ``decode``."""
        own = self.at(prefill)
        return own + int(self.fetched * max(0, self.at(decode) - own))


NOTHING_HELD: Final = Held()


@dataclass(frozen=True, slots=True)
class LastTurn:
    """The workers that did the last request of a session; ``prefill`` None where one did all."""

    decode: WorkerId | None = None
    prefill: WorkerId | None = None


NO_TURN: Final = LastTurn()


@dataclass(frozen=True, slots=True)
class RequestView:
    """What a policy may know of a request. ``last`` is a hint by the client: it may be wrong."""

    prompt_tokens: int
    max_tokens: int
    priority: int = 0
    held: Held = NOTHING_HELD
    last: LastTurn = NO_TURN


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What a policy may know of a worker.

    ``in_flight`` counts this router's own open requests there, ``running``/``waiting`` the
    worker's report. ``free_tokens`` is what its pool could take now (free and cached).
    ``linked`` are the prefill workers that may write into it. ``seats`` is how many requests it
    runs at once, None where it does not say. ``accepts`` is False while it has as much before it
    as it may have: nothing is sent there then. ``incarnation`` is the life it is in, None where
    nobody knows; ``pool_tokens`` is all that its pool holds.
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
    incarnation: Incarnation | None = None
    pool_tokens: int = 0


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
    no choice between the two ways, or the policy does not weigh them. ``decode_cached_tokens`` and
    ``prefill_cached_tokens`` of the prompt were expected to be there already.
    """

    decode: WorkerId
    prefill: WorkerId | None
    reason: str
    estimate: Estimate | None = None
    decode_cached_tokens: int = 0
    prefill_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """What came of a placement. Seconds.

    ``took_s`` is from the placement until the answer could run on: its first token, after a split
    with the KV in place. ``queue_s``, ``prefill_s`` and ``exposed_s`` are the parts of it that a
    prefill worker tells (see PrefillDone), 0 where nothing was split. ``cached_tokens`` of the
    prompt did not have to be computed; None where the worker did not say so in time.
    """

    placement: Placement
    prompt_tokens: int
    took_s: float
    queue_s: float = 0.0
    prefill_s: float = 0.0
    exposed_s: float = 0.0
    cached_tokens: int | None = None

    @property
    def predicted_s(self) -> float | None:
        """What was reckoned for ``took_s``."""
        estimate = self.placement.estimate
        if estimate is None:
            return None
        return estimate.whole_s if self.placement.prefill is None else estimate.split_s

    @property
    def computed_tokens(self) -> int:
        """Of the prompt; what was expected where nobody told."""
        cached = self.cached_tokens
        if cached is None:
            split = self.placement.prefill is not None
            placement = self.placement
            cached = placement.prefill_cached_tokens if split else placement.decode_cached_tokens
        return max(0, self.prompt_tokens - cached)

    @property
    def moved_tokens(self) -> int:
        """Of the prompt, to decode, as far as was expected when it was split."""
        return max(0, self.prompt_tokens - self.placement.decode_cached_tokens)


class Policy(Protocol):
    def place(
        self, request: RequestView, workers: Sequence[WorkerView], now: float
    ) -> Placement | None:
        """Chooses among workers that may be used at all; None when none can take the request."""
        ...

    def observed(self, observation: Observation) -> None:
        """Of one of its own placements, at most once. Not of those that failed."""
        ...
