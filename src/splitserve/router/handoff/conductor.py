"""Runs each request's machine: worker messages become events, actions become messages.

Every worker message is matched against the ledger first. What is said of an earlier attempt or of
a request that has ended finds nothing there and is dropped.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from splitserve.clock import Clock
from splitserve.errors import CallerError, OverloadError, PeerError, SplitserveError
from splitserve.ids import HandoffId, WorkerId, handoff_id
from splitserve.protocol.codec import Message
from splitserve.protocol.control import Abort, Failed, StepTokens, Submit
from splitserve.protocol.generate import TokenChunk
from splitserve.protocol.handoff import Grant, Prefill, PrefillDone, Refuse, Reserve
from splitserve.router.handoff import machine
from splitserve.router.handoff.actions import (
    Action,
    CountFallback,
    FailRequest,
    Fault,
    Requeue,
    SendAbort,
    SendPrefill,
    SendReserve,
    SendSubmit,
)
from splitserve.router.handoff.events import (
    Alternatives,
    Answered,
    Broken,
    Ended,
    Event,
    Granted,
    PartFailed,
    Spoke,
)
from splitserve.router.handoff.failures import LOST
from splitserve.router.handoff.generation import Assignment, Generation, asked_id, wire_id
from splitserve.router.handoff.states import Progress, State
from splitserve.router.ledger import Ledger
from splitserve.router.observer import RouterObserver
from splitserve.router.policy.base import Observation
from splitserve.router.workers.client import Order

log = logging.getLogger(__name__)


class Surroundings(Protocol):
    """What the conductor needs of the router around it."""

    def send(self, worker: WorkerId, order: Order) -> bool: ...

    def alternatives(self, generation: Generation, avoid: frozenset[WorkerId]) -> Alternatives:
        """Where it could go on, ``avoid`` left out."""
        ...

    def wait_for_room(self, generation: Generation, refused_by: WorkerId) -> None:
        """May place it at once, elsewhere."""
        ...

    def overload(self, generation: Generation, message: str) -> OverloadError:
        """Why it finds no room, as the client is told."""
        ...

    def prompted(self, worker: WorkerId, tokens: int) -> None:
        """The worker has computed a prompt of so many tokens."""
        ...

    def found(self, generation: Generation, worker: WorkerId, tokens: int) -> None:
        """So many tokens of the prompt were there already, as the worker says."""
        ...

    def holds(self, generation: Generation, worker: WorkerId) -> None:
        """The worker has the KV of the whole prompt now."""
        ...

    def observed(self, observation: Observation) -> None:
        """What came of a placement."""
        ...

    def freed(self, workers: frozenset[WorkerId]) -> None:
        """Something of a request has ended there."""
        ...

    def retired(self, generation: Generation) -> None:
        """It is in a final state."""
        ...


class Conductor:
    """Holds no request itself: generations come with events or from the ledger."""

    def __init__(
        self,
        surroundings: Surroundings,
        ledger: Ledger[Assignment],
        observer: RouterObserver,
        clock: Clock,
        lease_s: float,
    ) -> None:
        self._around = surroundings
        self._ledger = ledger
        self._observer = observer
        self._clock = clock
        self._lease_s = lease_s
        self._handoffs: dict[HandoffId, Generation] = {}
        self._on: Final[Mapping[type, Callable[[WorkerId, Any], None]]] = {
            StepTokens: self._tokens,
            Grant: self._grant,
            Refuse: self._refuse,
            PrefillDone: self._prefill_done,
            Failed: self._failed,
        }

    def step(self, generation: Generation, event: Event) -> None:
        """Runs the machine and carries out what it asks for."""
        before, now = generation.progress, self._clock()
        try:
            after, actions = machine.step(before, event, now)
        except machine.UnexpectedEvent as error:
            log.error("request %s: %s", generation.request.request_id, error)
            broken = Broken("a worker broke the protocol")
            after, actions = machine.step(before, broken, now)
        generation.progress = after
        left = before.working - (after.working if after.attempt == before.attempt else frozenset())
        self._close_books(generation, before, after, left)
        if after.attempt != before.attempt:
            self._new_attempt(generation)
        if after.state is not before.state:
            self._entered(generation, before, after, now)
        for action in actions:
            self._perform(generation, action)
        if left and after.state is not State.WAITING:
            self._around.freed(left)

    # What workers say

    def message(self, worker: WorkerId, message: Message) -> None:
        """From a connected worker; one of no meaning to a gateway is logged and dropped."""
        handler = self._on.get(type(message))
        if handler is None:
            log.error("%s from worker %s is not for a gateway", type(message).__name__, worker)
        else:
            handler(worker, message)

    def worker_lost(self, worker: WorkerId, reason: str) -> None:
        for assignment in self._ledger.lose(worker):
            self._part_failed(assignment, LOST, reason)

    def _tokens(self, worker: WorkerId, message: StepTokens) -> None:
        assignments = self._ledger.at(worker)
        for began in message.began:
            if (begun := assignments.get(began.request_id)) is not None:
                begun.generation.course.told(worker, began)
        for chunk in message.chunks:
            assignment = assignments.get(chunk.request_id)
            if assignment is None:
                continue
            if assignment.plain and chunk.finish_reason is None:
                assignment.stream.offer(chunk)
            else:
                self._first_or_last(assignment, chunk)

    def _first_or_last(self, assignment: Assignment, chunk: TokenChunk) -> None:
        generation, worker = assignment.generation, assignment.worker
        if chunk.finish_reason == "abort":
            self._part_failed(assignment, "aborted", "the worker aborted the request")
            return
        if not assignment.plain:
            assignment.plain = True
            self._note_cache(generation, worker, chunk)
            tokens = self._ledger.settle(worker, assignment.request_id)
            if tokens:
                self._around.prompted(worker, tokens)
            generation.course.spoke(worker, self._clock())
            self.step(generation, Spoke(worker))
        if generation.progress.final:
            return
        assignment.stream.offer(chunk)
        if assignment.stream.emitted:
            generation.course.answering(self._clock())
        if assignment.stream.complete:
            self.step(generation, Answered(worker))
        elif chunk.finish_reason is not None:
            self.step(generation, Ended(worker))

    def _note_cache(self, generation: Generation, worker: WorkerId, chunk: TokenChunk) -> None:
        """With a worker's first chunk. Where the KV came from elsewhere, or emitted tokens were
        computed too, it says nothing of what was cached of the prompt."""
        placement = generation.progress.placement
        computes = placement is not None and placement.prefill in (None, worker)
        if computes and chunk.index == 0 and chunk.cached_tokens is not None:
            generation.cached_tokens = chunk.cached_tokens
            self._around.found(generation, worker, chunk.cached_tokens)
        self._around.holds(generation, worker)

    def _grant(self, worker: WorkerId, message: Grant) -> None:
        generation = self._handoffs.get(message.target.handoff)
        if generation is not None:
            self._ledger.settle(worker, generation.wire_id())
            if message.target.blocks or message.target.skip_blocks:
                # One without blocks is of a worker that does not say what lies there.
                self._around.found(generation, worker, message.cached_tokens)
            self.step(generation, Granted(worker, message.target))

    def _refuse(self, worker: WorkerId, message: Refuse) -> None:
        generation = self._handoffs.get(message.handoff)
        if generation is not None:
            assignment = self._ledger.at(worker).get(generation.wire_id())
            if assignment is not None:
                self._part_failed(assignment, message.code, message.reason, message.param)

    def _failed(self, worker: WorkerId, message: Failed) -> None:
        assignment = self._ledger.at(worker).get(message.request_id)
        if assignment is not None:
            self._part_failed(assignment, message.code, message.reason, message.param)

    def _prefill_done(self, worker: WorkerId, message: PrefillDone) -> None:
        self._observer.handoff(
            asked_id(message.request_id),
            message.kv_bytes,
            message.queue_s,
            message.prefill_s,
            message.exposed_s,
        )
        assignment = self._ledger.at(worker).get(message.request_id)
        if assignment is not None:
            self._observe_split(assignment.generation, message)
            assignment.generation.course.moved(message)
            self.step(assignment.generation, Ended(worker))

    def _part_failed(
        self, assignment: Assignment, code: str, reason: str, param: str | None = None
    ) -> None:
        generation, worker = assignment.generation, assignment.worker
        log.info("%s at %s: %s (%s)", assignment.request_id, worker, code, reason)
        avoid = machine.avoided(generation.progress, worker, code)
        alternatives = self._around.alternatives(generation, avoid)
        self.step(generation, PartFailed(worker, code, reason, alternatives, param))

    # What the machine asks for

    def _perform(self, generation: Generation, action: Action) -> None:
        match action:
            case SendReserve(worker, writer):
                self._reserve(generation, worker, writer)
            case SendPrefill(worker, target):
                prefill = Prefill(generation.wire_request(), target, self._lease_s)
                generation.course.asked_prefill(worker, self._clock())
                self._assign(generation, worker, prefill)
            case SendSubmit(worker):
                submit = Submit(generation.wire_request(), tuple(generation.stream.emitted))
                generation.course.asked_whole(worker, self._clock())
                self._assign(generation, worker, submit)
            case SendAbort(worker, attempt):
                self._around.send(worker, Abort(wire_id(generation.request.request_id, attempt)))
            case Requeue(refused_by):
                self._around.wait_for_room(generation, refused_by)
            case CountFallback(rung, reason):
                self._observer.fallback(rung, reason)
                generation.course.fell_back(rung, reason)
            case FailRequest():
                generation.stream.fail(self._error(generation, action))

    def _reserve(self, generation: Generation, worker: WorkerId, writer: WorkerId) -> None:
        handoff = handoff_id(generation.request.request_id, generation.progress.attempt)
        generation.handoff = handoff
        self._handoffs[handoff] = generation
        reserve = Reserve(handoff, generation.wire_request(), writer, self._lease_s)
        self._ledger.promise(writer, generation.wire_id(), generation.view.prompt_tokens)
        generation.course.asked_decode(worker, self._clock())
        self._assign(generation, worker, reserve)

    def _assign(self, generation: Generation, worker: WorkerId, order: Order) -> None:
        """Into the ledger, then to the worker. A worker that cannot be reached any more is in the
        course of being lost: ``worker_lost`` follows and finds the entry."""
        name = generation.wire_id()
        assignment = Assignment(
            generation, worker, name, generation.progress.attempt, generation.stream
        )
        self._ledger.open(worker, name, assignment, generation.view.prompt_tokens)
        self._around.send(worker, order)

    # Keeping the books

    def _close_books(
        self, generation: Generation, before: Progress, after: Progress, left: frozenset[WorkerId]
    ) -> None:
        name = wire_id(generation.request.request_id, before.attempt)
        for worker in left:
            self._ledger.close(worker, name)
        over = after.attempt != before.attempt or not after.working
        if over and before.placement is not None and before.placement.prefill is not None:
            self._ledger.close(before.placement.prefill, name)  # it may only have been promised
        if over and generation.handoff is not None:
            del self._handoffs[generation.handoff]
            generation.handoff = None

    def _new_attempt(self, generation: Generation) -> None:
        generation.stream.restart()
        generation.cached_tokens = None
        generation.course.attempt(generation.progress.since)
        placement = generation.progress.placement
        assert placement is not None
        request_id = generation.request.request_id
        log.debug("request %s: %s", request_id, placement.reason)
        self._observer.placed(request_id, placement)

    def _entered(
        self, generation: Generation, before: Progress, after: Progress, now: float
    ) -> None:
        request_id = generation.request.request_id
        self._observer.phase(request_id, before.state.value, now - before.since)
        if before.state is State.LOCAL and after.state is State.DECODING:
            self._observe_whole(generation, now - before.since)
        if after.final:
            self._observer.ended(request_id, after.state.value)
            self._around.retired(generation)

    def _observe_whole(self, generation: Generation, took_s: float) -> None:
        placement = generation.progress.placement
        assert placement is not None
        tokens = generation.view.prompt_tokens
        cached = generation.cached_tokens
        self._around.observed(Observation(placement, tokens, took_s, cached_tokens=cached))

    def _observe_split(self, generation: Generation, done: PrefillDone) -> None:
        """Not after a failure: its time is in no part that the worker told."""
        placement, placed = generation.progress.placement, generation.placed
        if placement is None or placed is None or generation.progress.failures:
            return
        seen = Observation(
            placement,
            generation.view.prompt_tokens,
            self._clock() - placed,
            done.queue_s,
            done.prefill_s,
            done.exposed_s,
            generation.cached_tokens,
        )
        self._around.observed(seen)

    def _error(self, generation: Generation, failure: FailRequest) -> SplitserveError:
        if failure.fault is Fault.CALLER:
            return CallerError(failure.message, param=failure.param)
        if failure.fault is Fault.OVERLOAD:
            return self._around.overload(generation, failure.message)
        return PeerError(failure.message)
