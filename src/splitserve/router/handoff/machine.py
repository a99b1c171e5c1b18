"""The handoff machine: ``(progress, event, now) -> (progress, actions)``. Pure.

TABLE holds every pair that can happen; ``step`` raises UnexpectedEvent for the others and changes
nothing. In a final state late news is ignored. Plain middle tokens never come here.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from splitserve.errors import PeerError
from splitserve.ids import WorkerId
from splitserve.router.handoff import failures
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
    Answered,
    Broken,
    ClientGone,
    Deadline,
    Ended,
    Event,
    Granted,
    PartFailed,
    Placed,
    Spoke,
)
from splitserve.router.handoff.failures import Rung
from splitserve.router.handoff.kinds import Kind, kind_of
from splitserve.router.handoff.states import Part, Progress, State
from splitserve.router.policy.base import Placement

Step = tuple[Progress, tuple[Action, ...]]


class UnexpectedEvent(PeerError):
    """A worker said something that has no place in the request's state."""


def step(progress: Progress, event: Event, now: float) -> Step:
    """Raises UnexpectedEvent for a pair that is not in TABLE."""
    kind = kind_of(progress, event)
    handler = TABLE.get((progress.state, kind)) if kind is not None else None
    if handler is None:
        name = type(event).__name__ if kind is None else kind.name
        raise UnexpectedEvent(f"{name} in state {progress.state.name}")
    return handler(progress, event, now)


def avoided(progress: Progress, worker: WorkerId, code: str) -> frozenset[WorkerId]:
    """Workers that no further attempt should use once ``worker`` has failed with ``code``.

    One that drains comes back as good as new: the router leaves it out for as long as it is away.
    """
    if code == failures.DRAINING:
        return progress.avoid
    placement, part = progress.placement, progress.part_of(worker)
    if placement is None or part is None or placement.prefill is None:
        return progress.avoid | {worker}
    blamed = failures.blamed(part, code)
    return progress.avoid | {placement.prefill if blamed is Part.PREFILL else placement.decode}


# Going forward


def _place(progress: Progress, event: Placed, now: float) -> Step:
    if event.placement.prefill is None:
        return _start_whole(progress, event.placement, State.LOCAL, now)
    return _start_handoff(progress, event.placement, event.placement.prefill, now)


def _start_handoff(progress: Progress, placement: Placement, prefill: WorkerId, now: float) -> Step:
    started = _new_attempt(progress, placement, State.GRANTING, now)
    return started, (SendReserve(placement.decode, prefill),)


def _start_whole(progress: Progress, placement: Placement, state: State, now: float) -> Step:
    return _new_attempt(progress, placement, state, now), (SendSubmit(placement.decode),)


def _new_attempt(progress: Progress, placement: Placement, state: State, now: float) -> Progress:
    return replace(
        progress,
        state=state,
        since=now,
        attempt=progress.attempt + 1,
        placement=placement,
        working=frozenset({placement.decode}),
        decode_spoke=False,
    )


def _granted(progress: Progress, event: Granted, now: float) -> Step:
    assert progress.placement is not None
    prefill = progress.placement.prefill
    assert prefill is not None
    moved = _enter(progress, State.PREFILLING, now)
    moved = replace(moved, working=moved.working | {prefill})
    return moved, (SendPrefill(prefill, event.target),)


def _prefill_spoke(progress: Progress, event: Spoke, now: float) -> Step:
    """Decode may have been faster: then it has the KV."""
    del event
    state = State.DECODING if progress.decode_spoke else State.TRANSFERRING
    return replace(_enter(progress, state, now), answering=True), ()


def _noted(progress: Progress, event: Spoke, now: float) -> Step:
    """Decode works; its tokens may have to wait for the first one from prefill."""
    del event, now
    return replace(progress, decode_spoke=True), ()


def _decoding(progress: Progress, event: Spoke, now: float) -> Step:
    del event
    moved = _enter(progress, State.DECODING, now)
    return replace(moved, decode_spoke=True, answering=True), ()


def _handed_over(progress: Progress, event: Ended, now: float) -> Step:
    return _end_part(_enter(progress, State.DECODING, now), event, now)


def _end_part(progress: Progress, event: Ended, now: float) -> Step:
    left = _without(progress, event.worker)
    if not left.working:
        return _fail(left, FailRequest(Fault.PEER, "tokens of the answer are missing"), now)
    return left, ()


def _done(progress: Progress, event: Answered, now: float) -> Step:
    return _finish(_without(progress, event.worker), State.DONE, now)


# Going wrong


def _ignore(progress: Progress, event: Event, now: float) -> Step:
    del event, now
    return progress, ()


def _drop_prefill(progress: Progress, event: PartFailed, now: float) -> Step:
    """Decode has the KV: prefill's end makes no difference to the answer."""
    return _end_part(progress, Ended(event.worker), now)


def _part_failed(progress: Progress, event: PartFailed, now: float) -> Step:
    rung = failures.entry_rung(progress.state, event.code)
    if rung is Rung.ROOM:
        waiting = replace(_without(progress, event.worker), state=State.WAITING, since=now)
        return waiting, (Requeue(event.worker),)
    if rung is Rung.CALLER:
        fault = FailRequest(Fault.CALLER, event.reason, event.param)
        return _fail(_without(progress, event.worker), fault, now)
    return _descend(progress, event, rung, now)


def _descend(progress: Progress, event: PartFailed, rung: Rung, now: float) -> Step:
    """Takes the first open rung from ``rung`` down."""
    part, split = _who(progress, event.worker)
    why = failures.reason(part, split, event.code)
    left = replace(
        _without(progress, event.worker),
        failures=progress.failures + (event.code not in failures.BY_INTENT),
        avoid=avoided(progress, event.worker, event.code),
    )
    aborts = _aborts(left)
    chosen = _next_attempt(left, event, rung, now)
    if chosen is None:
        message = failures.sentence(part, split, event.code) + "; no other worker could go on"
        fault = _fault(progress, event.code)
        failed, actions = _fail(left, FailRequest(fault, message), now)
        return failed, (CountFallback("error", why), *actions)
    name, (moved, actions) = chosen
    return moved, (*aborts, CountFallback(name, why), *actions)


def _next_attempt(
    left: Progress, event: PartFailed, rung: Rung, now: float
) -> tuple[str, Step] | None:
    """The rung's name and the step onto it; None when there is none left."""
    if left.failures >= left.max_attempts:
        return None
    assert left.placement is not None
    handoff, whole = event.alternatives.handoff, event.alternatives.whole
    if rung is Rung.HANDOFF and handoff is not None and handoff.prefill is not None:
        same_decode = handoff.decode == left.placement.decode
        name = "other_prefill" if same_decode else "other_decode"
        return name, _start_handoff(left, handoff, handoff.prefill, now)
    if whole is None:
        return None
    name = "replay" if left.answering else "recompute"
    placement = Placement(whole, None, f"{name} after a failure")
    return name, _start_whole(left, placement, State.RECOMPUTING, now)


def _who(progress: Progress, worker: WorkerId) -> tuple[Part, bool]:
    assert progress.placement is not None
    split = progress.placement.prefill is not None
    return progress.part_of(worker) or Part.DECODE, split


def _fault(progress: Progress, code: str) -> Fault:
    full = code == "no_blocks" and not progress.answering
    return Fault.OVERLOAD if full else Fault.PEER


def _broken(progress: Progress, event: Broken, now: float) -> Step:
    return _fail(progress, FailRequest(Fault.PEER, event.reason), now)


def _too_late(progress: Progress, event: Deadline, now: float) -> Step:
    del event
    return _fail(progress, FailRequest(Fault.PEER, "the request took too long"), now)


def _no_room(progress: Progress, event: Deadline, now: float) -> Step:
    del event
    return _fail(progress, FailRequest(Fault.OVERLOAD, "no worker had room in time"), now)


def _cancel(progress: Progress, event: ClientGone, now: float) -> Step:
    del event
    return _finish(progress, State.CANCELLED, now)


def _fail(progress: Progress, failure: FailRequest, now: float) -> Step:
    final, aborts = _finish(progress, State.FAILED, now)
    return final, (*aborts, failure)


def _finish(progress: Progress, state: State, now: float) -> Step:
    """Into a final state: whoever still holds something is told to forget it."""
    return replace(_enter(progress, state, now), working=frozenset()), _aborts(progress)


def _aborts(progress: Progress) -> tuple[Action, ...]:
    return tuple(SendAbort(worker, progress.attempt) for worker in sorted(progress.working))


def _without(progress: Progress, worker: WorkerId) -> Progress:
    return replace(progress, working=progress.working - {worker})


def _enter(progress: Progress, state: State, now: float) -> Progress:
    return replace(progress, state=state, since=now)


Handler = Callable[[Progress, Any, float], Step]

_EVERYWHERE: Final[Mapping[Kind, Handler]] = {
    Kind.BROKEN: _broken,
    Kind.CLIENT_GONE: _cancel,
    Kind.DEADLINE: _too_late,
}

_WHOLE: Final[Mapping[Kind, Handler]] = {
    Kind.DECODE_SPOKE: _decoding,
    Kind.DECODE_FAILED: _part_failed,
}

_LATE: Final[Mapping[Kind, Handler]] = {Kind.CLIENT_GONE: _ignore, Kind.DEADLINE: _ignore}

_ROWS: Final[Mapping[State, Mapping[Kind, Handler]]] = {
    State.WAITING: {
        Kind.PLACED: _place,
        Kind.CLIENT_GONE: _cancel,
        Kind.DEADLINE: _no_room,
    },
    State.GRANTING: {
        **_EVERYWHERE,
        Kind.GRANTED: _granted,
        Kind.DECODE_FAILED: _part_failed,
    },
    State.PREFILLING: {
        **_EVERYWHERE,
        Kind.PREFILL_SPOKE: _prefill_spoke,
        Kind.DECODE_SPOKE: _noted,
        Kind.DECODE_ENDED: _end_part,
        Kind.PREFILL_FAILED: _part_failed,
        Kind.DECODE_FAILED: _part_failed,
    },
    State.TRANSFERRING: {
        **_EVERYWHERE,
        Kind.DECODE_SPOKE: _decoding,
        Kind.PREFILL_ENDED: _handed_over,
        Kind.PREFILL_FAILED: _part_failed,
        Kind.DECODE_FAILED: _part_failed,
        Kind.ANSWERED: _done,
    },
    State.DECODING: {
        **_EVERYWHERE,
        Kind.DECODE_SPOKE: _noted,
        Kind.PREFILL_ENDED: _end_part,
        Kind.DECODE_ENDED: _end_part,
        Kind.PREFILL_FAILED: _drop_prefill,
        Kind.DECODE_FAILED: _part_failed,
        Kind.ANSWERED: _done,
    },
    State.LOCAL: {**_EVERYWHERE, **_WHOLE},
    State.RECOMPUTING: {**_EVERYWHERE, **_WHOLE},
    State.DONE: _LATE,
    State.FAILED: _LATE,
    State.CANCELLED: _LATE,
}

TABLE: Final[Mapping[tuple[State, Kind], Handler]] = {
    (state, kind): handler for state, row in _ROWS.items() for kind, handler in row.items()
}
