"""What is noted of one request on its way through this gateway. On no wire."""

from dataclasses import dataclass, field

from splitserve.ids import WorkerId
from splitserve.protocol.control import Began
from splitserve.protocol.handoff import PrefillDone


@dataclass(slots=True)
class WorkerPart:
    """What one worker did of it. ``sent`` is when it was asked, ``spoke`` when its first token
    came: the gateway's clock. ``told`` is what it said of its own time."""

    worker: WorkerId
    sent: float
    spoke: float | None = None
    told: Began | None = None


@dataclass(slots=True)
class Course:
    """The router writes it, whoever asked for the answer reads it at the end.

    All times are the gateway's clock. ``arrived``: the router got it. ``begun``: the first worker
    was asked; ``attempted``: the first one of the attempt that brought the first token. ``first``:
    that token was there, in order. Either ``whole`` or ``prefill`` and ``decode`` had a part in
    that attempt. ``handoff`` is what prefill said at its end. ``fallbacks`` counts steps down the
    failure ladder by rung and reason, also later ones.
    """

    arrived: float | None = None
    begun: float | None = None
    attempted: float | None = None
    first: float | None = None
    whole: WorkerPart | None = None
    prefill: WorkerPart | None = None
    decode: WorkerPart | None = None
    handoff: PrefillDone | None = None
    fallbacks: dict[str, int] = field(default_factory=dict)
    _over: bool = False

    def attempt(self, now: float) -> None:
        """Workers are about to be asked anew. Once a token has left, that is no part of its way."""
        if self.first is not None:
            self._over = True
            return
        self.begun = now if self.begun is None else self.begun
        self.attempted = now
        self.whole = self.prefill = self.decode = self.handoff = None

    def asked_whole(self, worker: WorkerId, now: float) -> None:
        if not self._over:
            self.whole = WorkerPart(worker, now)

    def asked_prefill(self, worker: WorkerId, now: float) -> None:
        if not self._over:
            self.prefill = WorkerPart(worker, now)

    def asked_decode(self, worker: WorkerId, now: float) -> None:
        if not self._over:
            self.decode = WorkerPart(worker, now)

    def spoke(self, worker: WorkerId, now: float) -> None:
        """The worker's first token of an attempt came."""
        part = self._part(worker)
        if part is not None and part.spoke is None:
            part.spoke = now

    def told(self, worker: WorkerId, began: Began) -> None:
        part = self._part(worker)
        if part is not None:
            part.told = began

    def answering(self, now: float) -> None:
        """A token is there, in order."""
        if self.first is None:
            self.first = now

    def moved(self, done: PrefillDone) -> None:
        """Prefill has done its part."""
        if not self._over:
            self.handoff = done

    def fell_back(self, rung: str, reason: str) -> None:
        step = f"{rung}: {reason}"
        self.fallbacks[step] = self.fallbacks.get(step, 0) + 1

    def _part(self, worker: WorkerId) -> WorkerPart | None:
        parts = () if self._over else (self.whole, self.prefill, self.decode)
        return next((part for part in parts if part and part.worker == worker), None)
