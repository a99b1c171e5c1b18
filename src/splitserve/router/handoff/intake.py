"""Where requests come in, wait for room and are given to workers; also again after a failure."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from splitserve.clock import Clock
from splitserve.errors import BugError, CallerError, OverloadError, PeerError
from splitserve.ids import RequestId, WorkerId
from splitserve.protocol.codec import Message
from splitserve.protocol.generate import GenerateRequest
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.conductor import Conductor
from splitserve.router.handoff.events import Alternatives, ClientGone, Deadline, Placed
from splitserve.router.handoff.generation import Assignment, Generation
from splitserve.router.handoff.states import Progress
from splitserve.router.handoff.stream import TokenStream
from splitserve.router.ledger import Ledger
from splitserve.router.observer import RouterObserver
from splitserve.router.policy.base import Placement, Policy, RequestView, WorkerView
from splitserve.router.waiting import WaitingLine
from splitserve.router.workers.client import Order
from splitserve.router.workers.registry import WorkerRegistry, WorkerSink

RETRY_AFTER_S: Final = 1.0


class Intake:
    """The conductor's surroundings and the registry's sink. Holds every request that is open."""

    def __init__(
        self,
        config: RouterConfig,
        policy: Policy,
        ledger: Ledger[Assignment],
        observer: RouterObserver,
        clock: Clock,
        registry: Callable[[WorkerSink], WorkerRegistry],
    ) -> None:
        self._config = config
        self._policy = policy
        self._observer = observer
        self._clock = clock
        self._serial = count()
        self._open: dict[RequestId, Generation] = {}
        self._waiting: WaitingLine[Generation] = WaitingLine(lambda g: g.serial)
        self._conductor = Conductor(self, ledger, observer, clock, config.lease_s)
        self.workers = registry(self)

    @property
    def open(self) -> int:
        """Requests that have not ended, the waiting ones included."""
        return len(self._open)

    @property
    def waiting(self) -> int:
        """Requests that no worker has room for now."""
        return len(self._waiting)

    def let_in(self, request: GenerateRequest) -> Generation:
        """Starts the request or lets it wait.

        Raises CallerError (it fits nowhere) or OverloadError (too many wait already).
        """
        if request.request_id in self._open:
            raise BugError(f"request id {request.request_id} is in use")
        self._check_size(request)
        generation = self._generation(request)
        self._open[request.request_id] = generation
        self._waiting.join(generation)
        self._place_waiting()
        if len(self._waiting) > self._config.max_queued and not generation.progress.working:
            self._conductor.step(generation, Deadline())
            raise self.overload(f"{self._config.max_queued} requests wait for room already")
        return generation

    def give_up(self, generation: Generation) -> None:
        """Nobody reads it any more. Without effect on one that has ended."""
        self._conductor.step(generation, ClientGone())

    def close(self) -> None:
        """Ends everything that is open, the youngest first: or what waits would be placed."""
        for generation in reversed(list(self._open.values())):
            self.give_up(generation)
            generation.stream.fail(PeerError("the gateway is stopping"))

    def expire(self) -> None:
        """Ends what has waited or run too long."""
        now = self._clock()
        waits_since = now - self._config.queue_timeout_s
        while (first := self._waiting.first()) is not None and first.arrived <= waits_since:
            self._conductor.step(first, Deadline())
        runs_since = now - self._config.request_timeout_s
        while (oldest := self._oldest()) is not None and oldest.arrived <= runs_since:
            self._conductor.step(oldest, Deadline())

    def _check_size(self, request: GenerateRequest) -> None:
        capacity = self.workers.capacity_tokens()
        if capacity and len(request.token_ids) >= capacity:
            raise CallerError(
                f"the prompt has {len(request.token_ids)} tokens; "
                f"prompt and answer together may have {capacity}",
                code="context_length_exceeded",
            )

    def _generation(self, request: GenerateRequest) -> Generation:
        now = self._clock()
        view = RequestView(len(request.token_ids), request.sampling.max_tokens, request.priority)
        progress = Progress(max_attempts=self._config.max_attempts, since=now)
        return Generation(request, view, next(self._serial), now, TokenStream(), progress)

    def _oldest(self) -> Generation | None:
        return next(iter(self._open.values()), None)

    def _place_waiting(self) -> None:
        """In order of arrival; stops at the first that has to go on waiting."""
        while (generation := self._waiting.first()) is not None:
            views = self.workers.views()
            placement = self._place(generation.view, views)
            if placement is None:
                return
            self._waiting.leave(generation)
            if self._misses_prefill(placement, views):
                self._observer.fallback("local", "no_prefill")
            self._conductor.step(generation, Placed(placement))

    def _place(self, request: RequestView, workers: Sequence[WorkerView]) -> Placement | None:
        return self._policy.place(request, workers, self._clock()) if workers else None

    def _misses_prefill(self, placement: Placement, workers: Sequence[WorkerView]) -> bool:
        """Whether one worker has to do all although this deployment was meant to split."""
        if placement.prefill is not None or not self.workers.split():
            return False
        return any(w.worker == placement.decode and w.role != "colocated" for w in workers)

    # What the conductor asks

    def send(self, worker: WorkerId, order: Order) -> bool:
        return self.workers.send(worker, order)

    def alternatives(self, generation: Generation, avoid: frozenset[WorkerId]) -> Alternatives:
        usable = [view for view in self.workers.views() if view.worker not in avoid]
        placement = self._place(generation.view, usable)
        handoff = placement if placement is not None and placement.prefill is not None else None
        return Alternatives(handoff, _whole(generation.progress.placement, usable))

    def wait_for_room(self, generation: Generation, refused_by: WorkerId) -> None:
        self.workers.refused(refused_by)
        self._waiting.join(generation)
        self._place_waiting()

    def overload(self, message: str) -> OverloadError:
        """429 while there are workers, 503 while there are none."""
        status = 429 if self.workers.ready() is None else 503
        return OverloadError(message, retry_after_s=RETRY_AFTER_S, status=status)

    def freed(self, workers: frozenset[WorkerId]) -> None:
        for worker in workers:
            self.workers.freed(worker)
        self._place_waiting()

    def retired(self, generation: Generation) -> None:
        self._waiting.leave(generation)
        self._open.pop(generation.request.request_id, None)

    # What the registry tells

    def message(self, worker: WorkerId, message: Message) -> None:
        self._conductor.message(worker, message)

    def worker_lost(self, worker: WorkerId, reason: str) -> None:
        self._conductor.worker_lost(worker, reason)

    def room_changed(self) -> None:
        self._place_waiting()


def _whole(placement: Placement | None, usable: Sequence[WorkerView]) -> WorkerId | None:
    """A worker to do all of it: the decode worker at hand, else the least busy, prefill workers
    last. Room is not asked for: its engine queues what it cannot run yet."""
    if placement is not None and any(view.worker == placement.decode for view in usable):
        return placement.decode
    best = min(
        usable,
        key=lambda view: (view.role == "prefill", max(view.in_flight, view.running + view.waiting)),
        default=None,
    )
    return None if best is None else best.worker
