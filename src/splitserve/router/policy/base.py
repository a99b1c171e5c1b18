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
class Placement:
    """``decode`` runs the answer; ``prefill`` computes the prompt, None for all in one place.

    ``reason`` is for people: it goes to the request's record.
    """

    decode: WorkerId
    prefill: WorkerId | None
    reason: str


class Policy(Protocol):
    def place(
        self, request: RequestView, workers: Sequence[WorkerView], now: float
    ) -> Placement | None:
        """Chooses among workers that may be used at all; None when none can take the request."""
        ...
