"""Where requests come in, wait for room and are given to workers; also again after a failure."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from splitserve.clock import Clock
from splitserve.errors import BugError, CallerError, OverloadError, PeerError
from splitserve.ids import RequestId, WorkerId
from splitserve.protocol.codec import Message
from splitserve.protocol.control import Submit
from splitserve.protocol.course import Course
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.handoff import Prefill
from splitserve.router.admission.core import UNKNOWN_RETRY_S, Admission, nobody
from splitserve.router.admission.views import Candidate, Fleet, Refusal, Standing
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.conductor import Conductor
from splitserve.router.handoff.events import Alternatives, ClientGone, Deadline, Placed
from splitserve.router.handoff.generation import Assignment, Generation
from splitserve.router.handoff.states import Progress, State
from splitserve.router.handoff.stream import TokenStream
from splitserve.router.ledger import Ledger
from splitserve.router.observer import RouterObserver
from splitserve.router.policy.base import (
    LastTurn,
    Observation,
    Placement,
    Policy,
    RequestView,
    WorkerView,
)
from splitserve.router.policy.chunks import Chunks
from splitserve.router.policy.prefixes import Prefixes
from splitserve.router.policy.sessions import Sessions
from splitserve.router.workers.client import Order
from splitserve.router.workers.registry import WorkerRegistry, WorkerSink


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
        self._ledger = ledger
        self._observer = observer
        self._clock = clock
        self._serial = count()
        self._open: dict[RequestId, Generation] = {}
        self._admission = Admission(config.max_queued)
        self._line = self._admission.line
        self._rates = self._admission.rates
        self._prefixes = Prefixes()
        self._sessions = Sessions()
        self._conductor = Conductor(self, ledger, observer, clock, config.lease_s)
        self.workers = registry(self)

    @property
    def open(self) -> int:
        """Requests that have not ended, the waiting ones included."""
        return len(self._open)

    @property
    def waiting(self) -> int:
        """Requests that no worker has room for now."""
        return len(self._line)

    def let_in(self, request: GenerateRequest, course: Course) -> Generation:
        """Starts the request or lets it wait; what happens to it is noted in ``course``.

        Raises CallerError (it fits nowhere) or OverloadError (no worker is there; it would come
        too late; too many wait already).
        """
        if request.request_id in self._open:
            raise BugError(f"request id {request.request_id} is in use")
        if not self.workers.views():
            self._observer.admission("refused", nobody().reason)
            raise _overload(nobody())
        self._check_size(request)
        generation = self._generation(request, course)
        self._open[request.request_id] = generation
        self._line.join(generation.candidate)
        if self._line.first() is generation.candidate:
            self._place_waiting()
        if generation.candidate in self._line:
            self._judge(generation)
        if generation.refusal is not None:
            raise generation.refusal
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
        """Ends what would start too late or has run too long."""
        now = self._clock()
        if self._line:
            for candidate, refusal in self._admission.review(self._fleet(), now):
                self._refuse(self._open[candidate.request_id], refusal)
        runs_since = now - self._config.request_timeout_s
        while (oldest := self._oldest()) is not None and oldest.arrived <= runs_since:
            self._conductor.step(oldest, Deadline())
        self._tell_queue()

    def _check_size(self, request: GenerateRequest) -> None:
        capacity = self.workers.capacity_tokens()
        if capacity and len(request.token_ids) >= capacity:
            raise CallerError(
                f"the prompt has {len(request.token_ids)} tokens; "
                f"prompt and answer together may have {capacity}",
                code="context_length_exceeded",
            )

    def _generation(self, request: GenerateRequest, course: Course) -> Generation:
        now, tokens = self._clock(), len(request.token_ids)
        course.arrived = now
        candidate = Candidate(
            request_id=request.request_id,
            prompt_tokens=tokens,
            priority=request.priority,
            owner=request.owner,
            serial=next(self._serial),
            arrived=now,
            deadline=now + min(self._config.ttft_deadline_s, self._config.request_timeout_s),
        )
        view = RequestView(tokens, request.sampling.max_tokens, request.priority)
        progress = Progress(max_attempts=self._config.max_attempts, since=now)
        chunks = Chunks(request.cache_salt)
        chunks.extend(request.token_ids)
        return Generation(request, view, candidate, TokenStream(), progress, course, chunks)

    def _oldest(self) -> Generation | None:
        return next(iter(self._open.values()), None)

    # Admission

    def _judge(self, newcomer: Generation) -> None:
        """It has to wait: whether it may, and whether the line is not too long with it."""
        newcomer.waited = True
        fleet = self._fleet()
        refusal = self._admission.judge(newcomer.candidate, fleet, self._clock())
        if refusal is not None:
            self._refuse(newcomer, refusal)
        elif (surplus := self._admission.surplus(fleet)) is not None:
            candidate, refusal = surplus
            self._refuse(self._open[candidate.request_id], refusal)
        self._tell_queue()

    def _refuse(self, generation: Generation, refusal: Refusal) -> None:
        generation.refusal = _overload(refusal)
        self._observer.admission("refused", refusal.reason)
        self._conductor.step(generation, Deadline())

    def _fleet(self) -> Fleet:
        standings = [self._standing(view) for view in self.workers.views()]
        return Fleet(standings, len(self._open) - len(self._line))

    def _standing(self, view: WorkerView) -> Standing:
        reported = view.running + view.waiting
        return Standing(
            view,
            self._ledger.unsettled(view.worker),
            max(0, reported - self._ledger.open_at_report(view.worker)),
        )

    def _tell_queue(self) -> None:
        predicted_s = self._admission.predicted_wait_s(self._fleet()) if self._line else 0.0
        self._observer.queue(len(self._line), predicted_s)

    # Placing

    def _place_waiting(self) -> None:
        """In the line's order; stops at the first that has to go on waiting."""
        while (candidate := self._line.first()) is not None:
            fleet, now = self._fleet(), self._clock()
            views = self._admission.offers(fleet, now)
            generation = self._open[candidate.request_id]
            placement = self._place(generation, views)
            if placement is None:
                return
            late = self._admission.too_late(candidate, fleet, now) if generation.waited else None
            if late is not None:
                self._refuse(generation, late)
                continue
            self._line.serve(candidate)
            self._note_placed(generation, now)
            if self._misses_prefill(placement, views):
                self._observer.fallback("local", "no_prefill")
            self._conductor.step(generation, Placed(placement))

    def _note_placed(self, generation: Generation, now: float) -> None:
        if generation.placed is None:
            self._observer.admission("admitted", "waited" if generation.waited else "at_once")
            self._observer.waited(now - generation.arrived)
        generation.placed = now

    def _place(self, generation: Generation, workers: Sequence[WorkerView]) -> Placement | None:
        if not workers:
            return None
        now = self._clock()
        held = self._prefixes.held(generation.starts(), workers)
        last = self._sessions.last(generation.request.session, now)
        return self._policy.place(replace(generation.view, held=held, last=last), workers, now)

    def _misses_prefill(self, placement: Placement, workers: Sequence[WorkerView]) -> bool:
        """Whether one worker has to do all although this deployment was meant to split, and nobody
        found that cheaper."""
        chosen = placement.estimate is not None
        if placement.prefill is not None or chosen or not self.workers.split():
            return False
        return any(w.worker == placement.decode and w.role != "colocated" for w in workers)

    # What the conductor asks

    def send(self, worker: WorkerId, order: Order) -> bool:
        if isinstance(order, Submit | Prefill):
            alone = self._ledger.unsettled(worker) == 1
            self._rates.prompt(worker).begin(self._clock(), alone=alone)
        return self.workers.send(worker, order)

    def alternatives(self, generation: Generation, avoid: frozenset[WorkerId]) -> Alternatives:
        """Whether these workers accept anything is not asked: what has begun has its right to
        finish, and a worker without room refuses or queues it."""
        usable = [view for view in self.workers.views() if view.worker not in avoid]
        placement = self._place(generation, usable)
        handoff = placement if placement is not None and placement.prefill is not None else None
        return Alternatives(handoff, _whole(generation.progress.placement, usable))

    def wait_for_room(self, generation: Generation, refused_by: WorkerId) -> None:
        now = self._clock()
        for standing in self._fleet().workers:
            if standing.view.worker == refused_by:
                self._admission.seats.refused(refused_by, standing.occupied, now)
        self.workers.refused(refused_by)
        generation.waited = True
        self._line.rejoin(generation.candidate)
        self._place_waiting()

    def overload(self, generation: Generation, message: str) -> OverloadError:
        """What admission said; else 429 while there are workers, 503 while there are none."""
        if generation.refusal is not None:
            return generation.refusal
        refusal = nobody() if not self.workers.views() else None
        if refusal is None:
            refusal = Refusal("deadline", message, UNKNOWN_RETRY_S)
        return _overload(replace(refusal, message=message))

    def prompted(self, worker: WorkerId, tokens: int) -> None:
        more = self._ledger.unsettled(worker) > 0
        rate = self._rates.prompt(worker)
        rate.done(tokens, self._clock(), more=more, saturated=len(self._line) > 0)
        if self._line:
            self._place_waiting()

    def found(self, generation: Generation, worker: WorkerId, tokens: int) -> None:
        placement = generation.progress.placement
        prefills = placement is not None and worker == placement.prefill
        decode = placement.decode if placement is not None and prefills else None
        self._prefixes.told(worker, generation.starts(), tokens, decode)

    def holds(self, generation: Generation, worker: WorkerId) -> None:
        self._prefixes.note(worker, generation.chunks.names)

    def observed(self, observation: Observation) -> None:
        self._policy.observed(observation)
        self._observer.observed(observation)

    def freed(self, workers: frozenset[WorkerId]) -> None:
        for worker in workers:
            if not self._ledger.unsettled(worker):
                self._rates.prompt(worker).idle()
            self.workers.freed(worker)
        self._place_waiting()

    def retired(self, generation: Generation) -> None:
        if generation.progress.state is State.DONE and generation.placed is not None:
            self._rates.answered(self._clock() - generation.placed)
        self._note_answer(generation)
        self._line.leave(generation.candidate)
        self._open.pop(generation.request.request_id, None)

    def _note_answer(self, generation: Generation) -> None:
        """Decode has the KV of the answer but for its last token, which nothing was computed from;
        also where the client did not want to hear all of it."""
        progress = generation.progress
        if progress.state is State.FAILED or progress.placement is None:
            return
        if progress.decode_spoke:
            generation.chunks.extend(generation.stream.emitted[:-1])
            placement = progress.placement
            self._prefixes.note(placement.decode, generation.chunks.names)
            turn = LastTurn(placement.decode, placement.prefill)
            self._sessions.note(generation.request.session, turn, self._clock())

    # What the registry tells

    def message(self, worker: WorkerId, message: Message) -> None:
        self._conductor.message(worker, message)

    def worker_lost(self, worker: WorkerId, reason: str) -> None:
        self._prefixes.forget(worker)
        self._sessions.forget(worker)
        self._conductor.worker_lost(worker, reason)

    def room_changed(self) -> None:
        self._place_waiting()


def _overload(refusal: Refusal) -> OverloadError:
    return OverloadError(
        refusal.message, retry_after_s=refusal.retry_after_s, status=refusal.status
    )


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
