import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.ids import HandoffId, WorkerId
from splitserve.protocol.handoff import GrantTarget
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
    Alternatives,
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
from splitserve.router.handoff.kinds import Kind
from splitserve.router.handoff.machine import UnexpectedEvent, avoided, step
from splitserve.router.handoff.states import FINAL, Progress, State
from splitserve.router.policy.base import Placement

P, P2, D, D2 = (WorkerId(name) for name in ("p", "p2", "d", "d2"))
SPLIT = Placement(D, P, "test")
WHOLE = Placement(D, None, "test")
TARGET = GrantTarget(HandoffId("r#0"), 1, D, "link", 0, (1,))
NOW = 50.0


def in_state(state: State) -> Progress:
    """A request that has come to ``state`` the usual way."""
    working = {
        State.GRANTING: {D},
        State.PREFILLING: {D, P},
        State.TRANSFERRING: {D, P},
        State.DECODING: {D, P},
        State.LOCAL: {D},
        State.RECOMPUTING: {D},
    }.get(state, set())
    whole = state in (State.LOCAL, State.RECOMPUTING)
    started = state in (State.TRANSFERRING, State.DECODING)
    return Progress(
        max_attempts=3,
        since=1.0,
        state=state,
        attempt=-1 if state is State.WAITING else 0,
        placement=None if state is State.WAITING else WHOLE if whole else SPLIT,
        working=frozenset(working),
        decode_spoke=state is State.DECODING,
        answering=started,
    )


EVENTS: dict[Kind, Event] = {
    Kind.PLACED: Placed(SPLIT),
    Kind.GRANTED: Granted(D, TARGET),
    Kind.PREFILL_SPOKE: Spoke(P),
    Kind.DECODE_SPOKE: Spoke(D),
    Kind.PREFILL_ENDED: Ended(P),
    Kind.DECODE_ENDED: Ended(D),
    Kind.PREFILL_FAILED: PartFailed(P, "lost", "gone"),
    Kind.DECODE_FAILED: PartFailed(D, "lost", "gone"),
    Kind.ANSWERED: Answered(D),
    Kind.BROKEN: Broken("nonsense"),
    Kind.CLIENT_GONE: ClientGone(),
    Kind.DEADLINE: Deadline(),
}

# Where each pair leads when there is no worker left to go on with; pairs not listed are refused.
ROWS: dict[State, dict[Kind, State]] = {
    State.WAITING: {
        Kind.PLACED: State.GRANTING,
        Kind.CLIENT_GONE: State.CANCELLED,
        Kind.DEADLINE: State.FAILED,
    },
    State.GRANTING: {
        Kind.GRANTED: State.PREFILLING,
        Kind.DECODE_FAILED: State.FAILED,
        Kind.BROKEN: State.FAILED,
        Kind.CLIENT_GONE: State.CANCELLED,
        Kind.DEADLINE: State.FAILED,
    },
    State.PREFILLING: {
        Kind.PREFILL_SPOKE: State.TRANSFERRING,
        Kind.DECODE_SPOKE: State.PREFILLING,
        Kind.DECODE_ENDED: State.PREFILLING,
        Kind.PREFILL_FAILED: State.FAILED,
        Kind.DECODE_FAILED: State.FAILED,
        Kind.BROKEN: State.FAILED,
        Kind.CLIENT_GONE: State.CANCELLED,
        Kind.DEADLINE: State.FAILED,
    },
    State.TRANSFERRING: {
        Kind.DECODE_SPOKE: State.DECODING,
        Kind.PREFILL_ENDED: State.DECODING,
        Kind.PREFILL_FAILED: State.FAILED,
        Kind.DECODE_FAILED: State.FAILED,
        Kind.ANSWERED: State.DONE,
        Kind.BROKEN: State.FAILED,
        Kind.CLIENT_GONE: State.CANCELLED,
        Kind.DEADLINE: State.FAILED,
    },
    State.DECODING: {
        Kind.DECODE_SPOKE: State.DECODING,
        Kind.PREFILL_ENDED: State.DECODING,
        Kind.DECODE_ENDED: State.DECODING,
        Kind.PREFILL_FAILED: State.DECODING,
        Kind.DECODE_FAILED: State.FAILED,
        Kind.ANSWERED: State.DONE,
        Kind.BROKEN: State.FAILED,
        Kind.CLIENT_GONE: State.CANCELLED,
        Kind.DEADLINE: State.FAILED,
    },
    State.LOCAL: {
        Kind.DECODE_SPOKE: State.DECODING,
        Kind.DECODE_FAILED: State.FAILED,
        Kind.BROKEN: State.FAILED,
        Kind.CLIENT_GONE: State.CANCELLED,
        Kind.DEADLINE: State.FAILED,
    },
    State.RECOMPUTING: {
        Kind.DECODE_SPOKE: State.DECODING,
        Kind.DECODE_FAILED: State.FAILED,
        Kind.BROKEN: State.FAILED,
        Kind.CLIENT_GONE: State.CANCELLED,
        Kind.DEADLINE: State.FAILED,
    },
} | {state: {Kind.CLIENT_GONE: state, Kind.DEADLINE: state} for state in FINAL}

PAIRS = list(itertools.product(State, Kind))


@pytest.mark.parametrize(("state", "kind"), PAIRS)
def test_every_pair_leads_where_the_table_says_or_is_refused(state: State, kind: Kind) -> None:
    before = in_state(state)
    expected = ROWS[state].get(kind)
    if expected is None:
        with pytest.raises(UnexpectedEvent):
            step(before, EVENTS[kind], NOW)
        return
    after, _ = step(before, EVENTS[kind], NOW)
    assert after.state is expected
    assert after.since == (NOW if expected is not state else 1.0)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize(
    "event", [Spoke(P2), Ended(P2), PartFailed(P2, "lost", ""), Granted(D2, TARGET)]
)
def test_news_of_a_worker_that_has_no_part_is_refused(state: State, event: Event) -> None:
    with pytest.raises(UnexpectedEvent):
        step(in_state(state), event, NOW)


def test_split_path_sends_reserve_then_prefill_and_nothing_else() -> None:
    progress = in_state(State.WAITING)
    sent: list[Action] = []
    for event in (Placed(SPLIT), Granted(D, TARGET), Spoke(P), Ended(P), Spoke(D), Answered(D)):
        progress, actions = step(progress, event, NOW)
        sent += actions
    assert progress.state is State.DONE
    assert sent == [SendReserve(D, P), SendPrefill(P, TARGET)]


def test_colocated_path_submits_once() -> None:
    progress = in_state(State.WAITING)
    sent: list[Action] = []
    for event in (Placed(WHOLE), Spoke(D), Answered(D)):
        progress, actions = step(progress, event, NOW)
        sent += actions
    assert progress.state is State.DONE
    assert sent == [SendSubmit(D)]


def test_an_answer_that_ends_with_the_first_token_aborts_decode() -> None:
    progress, _ = step(in_state(State.PREFILLING), Spoke(P), NOW)
    progress, actions = step(progress, Answered(P), NOW)
    assert progress.state is State.DONE
    assert actions == (SendAbort(D, 0),)


def test_first_token_after_decode_spoke_needs_no_transferring() -> None:
    progress, _ = step(in_state(State.PREFILLING), Spoke(D), NOW)
    progress, _ = step(progress, Spoke(P), NOW)
    assert progress.state is State.DECODING


def test_missing_tokens_are_an_error_once_nobody_works_any_more() -> None:
    progress, _ = step(in_state(State.DECODING), Ended(D), NOW)
    progress, actions = step(progress, Ended(P), NOW)
    assert progress.state is State.FAILED
    assert actions == (FailRequest(Fault.PEER, "tokens of the answer are missing"),)


def test_refusal_for_lack_of_room_waits_again_and_costs_no_attempt() -> None:
    event = PartFailed(D, "no_blocks", "full", Alternatives(whole=D2))
    waiting, actions = step(in_state(State.GRANTING), event, NOW)
    assert (waiting.state, waiting.failures, waiting.avoid) == (State.WAITING, 0, frozenset())
    assert actions == (Requeue(D),)
    again, _ = step(waiting, Placed(SPLIT), NOW)
    assert again.attempt == 1


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (State.GRANTING, "too_long"),
        (State.PREFILLING, "invalid"),
        (State.LOCAL, "invalid"),
        (State.RECOMPUTING, "too_long"),
        (State.TRANSFERRING, "invalid"),
        (State.DECODING, "invalid"),
    ],
)
def test_what_the_caller_did_wrong_is_said_to_the_caller_and_not_tried_again(
    state: State, code: str
) -> None:
    anywhere = Alternatives(Placement(D2, P2, ""), D2)
    event = PartFailed(D, code, "too many tokens", anywhere, "prompt")
    failed, actions = step(in_state(state), event, NOW)
    assert failed.state is State.FAILED
    assert actions[-1] == FailRequest(Fault.CALLER, "too many tokens", "prompt")
    assert not any(isinstance(action, SendSubmit | SendReserve) for action in actions)


def test_an_answer_whose_grammar_breaks_off_is_not_replayed() -> None:
    answering, _ = step(in_state(State.LOCAL), Spoke(D), NOW)
    failed, actions = step(answering, PartFailed(D, "invalid", "", Alternatives(whole=D2)), NOW)
    assert failed.state is State.FAILED
    assert actions == (FailRequest(Fault.CALLER, ""),)


@pytest.mark.parametrize("state", [State.GRANTING, State.LOCAL])
def test_what_a_leaving_worker_had_not_begun_is_placed_anew(state: State) -> None:
    event = PartFailed(D, "draining", "leaving", Alternatives(whole=D2))
    waiting, actions = step(in_state(state), event, NOW)
    assert (waiting.state, waiting.failures, waiting.avoid) == (State.WAITING, 0, frozenset())
    assert actions == (Requeue(D),)


def test_a_request_may_be_handed_over_any_number_of_times() -> None:
    progress, _ = step(in_state(State.LOCAL), Spoke(D), NOW)
    here, there = D, D2
    for code in ("draining",) * 20:
        handed = PartFailed(here, code, "", Alternatives(whole=there))
        progress, actions = step(progress, handed, NOW)
        assert actions == (CountFallback("replay", f"worker_{code}"), SendSubmit(there))
        progress, _ = step(progress, Spoke(there), NOW)
        here, there = there, here
    assert progress.state is State.DECODING
    assert (progress.failures, progress.avoid) == (0, frozenset())


def test_a_worker_with_another_role_is_left_alone_and_costs_no_attempt() -> None:
    event = PartFailed(D, "role_changed", "", Alternatives(whole=D2))
    moved, _ = step(in_state(State.DECODING), event, NOW)
    assert (moved.state, moved.failures, moved.avoid) == (State.RECOMPUTING, 0, {D})


def test_no_room_anywhere_in_the_end_is_overload() -> None:
    _, actions = step(in_state(State.LOCAL), PartFailed(D, "no_blocks", ""), NOW)
    failure = actions[-1]
    assert isinstance(failure, FailRequest)
    assert failure.fault is Fault.OVERLOAD


# The kill table: what becomes of a request when a worker is lost, by state, by worker, and by what
# is left: another pair, one worker for all of it, nothing.
PAIR = Alternatives(Placement(D, P2, ""), D)
PAIR_OTHER_DECODE = Alternatives(Placement(D2, P, ""), D2)
KILLS = [
    (State.GRANTING, D, PAIR_OTHER_DECODE, State.GRANTING, "other_decode", {D}),
    (State.GRANTING, D, Alternatives(whole=P), State.RECOMPUTING, "recompute", set()),
    (State.PREFILLING, P, PAIR, State.GRANTING, "other_prefill", {D}),
    (State.PREFILLING, P, Alternatives(whole=D), State.RECOMPUTING, "recompute", {D}),
    (State.PREFILLING, D, PAIR_OTHER_DECODE, State.GRANTING, "other_decode", {P}),
    (State.PREFILLING, D, Alternatives(whole=P), State.RECOMPUTING, "recompute", {P}),
    (State.TRANSFERRING, P, PAIR, State.RECOMPUTING, "replay", {D}),
    (State.TRANSFERRING, D, PAIR_OTHER_DECODE, State.RECOMPUTING, "replay", {P}),
    (State.DECODING, P, PAIR, State.DECODING, None, set()),
    (State.DECODING, D, PAIR_OTHER_DECODE, State.RECOMPUTING, "replay", {P}),
    (State.LOCAL, D, PAIR_OTHER_DECODE, State.RECOMPUTING, "recompute", set()),
    (State.RECOMPUTING, D, PAIR_OTHER_DECODE, State.RECOMPUTING, "recompute", set()),
]


@pytest.mark.parametrize(("state", "lost", "left", "leads_to", "rung", "told"), KILLS)
def test_a_lost_worker_leads_down_the_ladder(
    state: State,
    lost: WorkerId,
    left: Alternatives,
    leads_to: State,
    rung: str | None,
    told: set[WorkerId],
) -> None:
    after, actions = step(in_state(state), PartFailed(lost, "lost", "gone", left), NOW)
    assert after.state is leads_to
    assert [a.rung for a in actions if isinstance(a, CountFallback)] == ([rung] if rung else [])
    aborted = {a.worker for a in actions if isinstance(a, SendAbort)}
    assert aborted == told - {lost}
    assert lost not in aborted


def test_the_kill_table_is_complete() -> None:
    assert {(row[0], row[1]) for row in KILLS} == {
        (state, worker) for state in State for worker in in_state(state).working
    }


WORKING = [
    (state, worker)
    for state in State
    for worker in sorted(in_state(state).working)
    if (state, worker) != (State.DECODING, P)
]


@pytest.mark.parametrize(("state", "lost"), WORKING)
def test_with_nobody_left_the_loss_is_one_clear_error(state: State, lost: WorkerId) -> None:
    before = in_state(state)
    failed, actions = step(before, PartFailed(lost, "lost", "gone"), NOW)
    assert failed.state is State.FAILED
    assert {a.worker for a in actions if isinstance(a, SendAbort)} == before.working - {lost}
    assert actions[0] == CountFallback("error", failures.reason(*_who(before, lost), "lost"))
    failure = actions[-1]
    assert isinstance(failure, FailRequest)
    assert failure.fault is Fault.PEER
    assert "was lost" in failure.message


def _who(progress: Progress, worker: WorkerId) -> tuple[failures.Part, bool]:
    part = progress.part_of(worker)
    assert part is not None
    assert progress.placement is not None
    return part, progress.placement.prefill is not None


def test_attempts_are_bounded() -> None:
    progress = in_state(State.LOCAL)
    rounds = 0
    while not progress.final:
        worker = next(iter(progress.working))
        other = D2 if worker == D else D
        lost = PartFailed(worker, "lost", "gone", Alternatives(whole=other))
        progress, _ = step(progress, lost, NOW)
        rounds += 1
    assert rounds == 3
    assert progress.state is State.FAILED


def test_who_is_to_blame_is_avoided() -> None:
    prefilling = in_state(State.PREFILLING)
    assert avoided(prefilling, D, "lost") == {D}
    assert avoided(prefilling, D, "writer_lost") == {P}
    assert avoided(prefilling, D, "lease_expired") == {P}
    assert avoided(prefilling, P, "engine") == {P}
    assert avoided(prefilling, P, "decode_lost") == {D}
    assert avoided(in_state(State.LOCAL), D, "writer_lost") == {D}


def test_reasons_come_from_a_fixed_set_whatever_a_worker_sends() -> None:
    assert failures.reason(failures.Part.DECODE, True, "x" * 1000) == "decode_unknown"
    assert failures.reason(failures.Part.DECODE, False, "engine") == "worker_engine"


# Random lives

WORKERS = (P, P2, D, D2)
placements = st.sampled_from([Placement(d, p, "") for d in (D, D2) for p in (P, P2, None)])
codes = st.sampled_from([*failures.MEANINGS, "new_code"])


@st.composite
def alternatives(draw: st.DrawFn) -> Alternatives:
    pair = draw(st.none() | placements.filter(lambda p: p.prefill is not None))
    return Alternatives(pair, draw(st.none() | st.sampled_from(WORKERS)))


workers = st.sampled_from(WORKERS)
random_events = st.one_of(
    st.builds(Placed, placements),
    st.builds(Granted, workers, st.just(TARGET)),
    st.builds(Spoke, workers),
    st.builds(Ended, workers),
    st.builds(Answered, workers),
    st.builds(PartFailed, workers, codes, st.just("why"), alternatives()),
    st.just(Broken("nonsense")),
)


class Told:
    """What workers were told and have neither ended nor been told to forget."""

    def __init__(self) -> None:
        self.open: set[tuple[WorkerId, int]] = set()

    def follow(self, before: Progress, event: Event, after: Progress, actions: object) -> None:
        if isinstance(event, Ended | PartFailed | Answered):
            self.open.discard((event.worker, before.attempt))
        for action in actions:  # type: ignore[attr-defined]
            if isinstance(action, SendReserve | SendPrefill | SendSubmit):
                self.open.add((action.worker, after.attempt))
            elif isinstance(action, SendAbort):
                assert (action.worker, action.attempt) in self.open
                self.open.discard((action.worker, action.attempt))


@settings(max_examples=150, deadline=None)
@given(
    events=st.lists(random_events, max_size=30),
    last=st.sampled_from([ClientGone(), Deadline()]),
)
def test_no_sequence_of_events_leaves_a_worker_unaborted_or_a_request_unended(
    events: list[Event], last: Event
) -> None:
    progress, told = Progress(max_attempts=3, since=0.0), Told()
    failed = 0
    for now, event in enumerate([*events, last]):
        try:
            after, actions = step(progress, event, float(now))
        except UnexpectedEvent:
            continue
        told.follow(progress, event, after, actions)
        failed += sum(isinstance(action, FailRequest) for action in actions)
        assert told.open == {(worker, after.attempt) for worker in after.working}
        progress = after
    assert progress.final
    assert not told.open
    assert failed == (progress.state is State.FAILED)
    assert progress.failures <= 3
