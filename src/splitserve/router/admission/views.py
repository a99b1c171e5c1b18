"""What admission knows of a request and of the workers, and how it says no."""

from collections.abc import Sequence
from dataclasses import dataclass

from splitserve.ids import RequestId
from splitserve.router.policy.base import WorkerView


@dataclass(frozen=True, slots=True)
class Candidate:
    """One request that wants to run.

    ``prompt_tokens`` counts the cached ones too: rates are measured over such prompts. Of
    ``priority`` the lower goes first. ``owner`` is whose request it is, ``serial`` orders arrivals.
    ``arrived`` and ``deadline`` (for the first token) are seconds on the router's clock.
    """

    request_id: RequestId
    prompt_tokens: int
    priority: int
    owner: str
    serial: int
    arrived: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Standing:
    """One worker as this gateway sees it.

    ``unsettled`` are own requests sent there whose work has not begun to show, ``elsewhere`` what
    the worker reported of other gateways' requests.
    """

    view: WorkerView
    unsettled: int = 0
    elsewhere: int = 0

    @property
    def occupied(self) -> int:
        """Requests that hold a place there."""
        return self.view.in_flight + self.elsewhere


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers that may be used. ``running`` are own requests that have been placed."""

    workers: Sequence[Standing]
    running: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """``reason`` is the metric's word: ``deadline``, ``queue_full`` or ``no_worker``. ``message``
    is for the client; ``retry_after_s`` is when a new attempt would get in."""

    reason: str
    message: str
    retry_after_s: float
    status: int = 429
