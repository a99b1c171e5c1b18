"""What the router tells of its work: counters and intervals, for whoever keeps them."""

from typing import Protocol

from splitserve.ids import RequestId
from splitserve.router.policy.base import Placement


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

    def fallback(self, rung: str, reason: str) -> None:
        """One step down the failure ladder. Both words come from small fixed sets."""
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

    def fallback(self, rung: str, reason: str) -> None:
        pass

    def ended(self, request_id: RequestId, outcome: str) -> None:
        pass
