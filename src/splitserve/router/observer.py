"""What the router tells of its work: counters and intervals, for whoever keeps them."""

from typing import Protocol

from splitserve.ids import RequestId
from splitserve.router.policy.base import Observation, Placement


class RouterObserver(Protocol):
    """Called on the event loop: must not block. Times in seconds."""

    def placed(self, request_id: RequestId, placement: Placement) -> None:
        """Workers were chosen, and why. More than once when the request moved."""
        ...

    def phase(self, request_id: RequestId, phase: str, seconds: float) -> None:
        """The request left the handoff state ``phase`` after ``seconds``."""
        ...

    def handoff(
        self, request_id: RequestId, nbytes: int, queue_s: float, prefill_s: float, exposed_s: float
    ) -> None:
        """A prefill worker moved a prompt's KV (see PrefillDone)."""
        ...

    def observed(self, observation: Observation) -> None:
        """What came of a placement. Not of those that failed, nor of what was done after."""
        ...

    def fallback(self, rung: str, reason: str) -> None:
        """One step down the failure ladder. Both words come from small fixed sets."""
        ...

    def admission(self, decision: str, reason: str) -> None:
        """``admitted`` (``at_once`` or ``waited``) or ``refused`` (see Refusal). Once per request;
        not for a client that leaves before; twice where one is refused that a worker sent back."""
        ...

    def waited(self, seconds: float) -> None:
        """A request was given to workers so long after it came."""
        ...

    def queue(self, depth: int, predicted_wait_s: float) -> None:
        """How many wait for room, and how long one that came now would."""
        ...

    def ended(self, request_id: RequestId, outcome: str) -> None:
        """``outcome``: ``done``, ``failed`` or ``cancelled``. Once per request."""
        ...


class NullObserver:
    """Keeps nothing."""

    def placed(self, request_id: RequestId, placement: Placement) -> None:
        pass

    def phase(self, request_id: RequestId, phase: str, seconds: float) -> None:
        pass

    def handoff(
        self, request_id: RequestId, nbytes: int, queue_s: float, prefill_s: float, exposed_s: float
    ) -> None:
        pass

    def observed(self, observation: Observation) -> None:
        pass

    def fallback(self, rung: str, reason: str) -> None:
        pass

    def admission(self, decision: str, reason: str) -> None:
        pass

    def waited(self, seconds: float) -> None:
        pass

    def queue(self, depth: int, predicted_wait_s: float) -> None:
        pass

    def ended(self, request_id: RequestId, outcome: str) -> None:
        pass
