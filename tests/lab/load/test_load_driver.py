"""Open and closed loop, against a client whose answers the test holds in its hand."""

import asyncio
from dataclasses import dataclass, field

import pytest

from splitserve.errors import ConfigError
from splitserve.lab.load.corpus.synthetic import (
    SessionShape,
    Shape,
    Vocabulary,
    synthetic,
    synthetic_sessions,
)
from splitserve.lab.load.driver import (
    ClosedLoop,
    Patience,
    Progress,
    run_closed,
    run_open,
)
from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.load.request import LoadRequest
from splitserve.lab.load.schedule import Due, after_warmup, at_offsets, conversations

VOCAB = Vocabulary(200)
PATIENCE = Patience(drain_s=5.0, late_s=1.0)
REQUESTS = synthetic("measured", 1, 40, Shape(4, 2), VOCAB)


@dataclass
class FakeClient:
    """Answers once ``together`` requests are in flight; time stands at ``now_s``."""

    together: int = 1
    now_s: float = 0.0
    takes_s: float = 0.25
    flying: int = 0
    most: int = 0
    sent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.all_there = asyncio.Event()

    def now(self) -> float:
        return self.now_s

    async def send(
        self, request: LoadRequest, intended_s: float, *, cut_s: float, warmup: bool
    ) -> RequestRecord:
        self.sent.append(request.request_id)
        self.flying += 1
        self.most = max(self.most, self.flying)
        if self.flying >= self.together:
            self.all_there.set()
        await self.all_there.wait()
        await asyncio.sleep(0)
        self.flying -= 1
        record = self.unsent(request, intended_s, Outcome.OK, warmup=warmup)
        record.ended_s = intended_s + self.takes_s
        return record

    def unsent(
        self, request: LoadRequest, intended_s: float, outcome: Outcome, *, warmup: bool
    ) -> RequestRecord:
        return RequestRecord(
            request_id=request.request_id,
            arm="A",
            run="1",
            intended_s=intended_s,
            sent_s=None,
            first_byte_s=None,
            events=[],
            ended_s=intended_s,
            outcome=outcome,
            counting=Counting.EVENTS,
            session=request.session,
            turn=request.turn,
            warmup=warmup,
        )


class Watching:
    def __init__(self) -> None:
        self.seen: list[Progress] = []

    def __call__(self, record: RequestRecord, progress: Progress) -> None:
        self.seen.append(progress)


async def test_no_request_of_an_open_loop_waits_for_another_one_s_answer() -> None:
    client, watching = FakeClient(together=40), Watching()
    records = await run_open(client, at_offsets(REQUESTS, [0.0] * 40), PATIENCE, watching)
    assert client.most == 40
    assert {record.outcome for record in records} == {Outcome.OK}
    assert [(one.ended, one.total) for one in watching.seen] == [(n, 40) for n in range(1, 41)]


async def test_requests_leave_in_the_order_in_which_they_are_due() -> None:
    client = FakeClient()
    schedule = at_offsets(REQUESTS[:4], [0.0, 0.01, 0.02, 0.03])
    await run_open(client, schedule[::-1], PATIENCE, Watching())
    assert client.sent == [request.request_id for request in REQUESTS[:4]]


async def test_a_turn_is_due_its_think_time_after_the_answer_before() -> None:
    shape = SessionShape(turns=3, first_tokens=4, turn_tokens=2, max_tokens=2, think_s=0.5)
    turns = synthetic_sessions("measured", 1, 1, shape, VOCAB)
    client = FakeClient(now_s=2.9)
    schedule = at_offsets(turns, [1.5])
    patience = Patience(drain_s=5.0, late_s=2.0)
    records = await run_open(client, schedule, patience, Watching())
    assert client.sent == [turn.request_id for turn in turns]
    assert [record.intended_s for record in records] == [1.5, 2.25, 3.0]


async def test_a_request_that_the_client_is_too_late_for_is_not_sent() -> None:
    client = FakeClient(now_s=3.0)
    records = await run_open(client, at_offsets(REQUESTS[:2], [1.9, 2.1]), PATIENCE, Watching())
    assert [record.outcome for record in records] == [Outcome.NEVER_SENT, Outcome.OK]
    assert client.sent == [REQUESTS[1].request_id]


async def test_a_turn_after_the_drain_counts_against_its_slow_session() -> None:
    shape = SessionShape(turns=2, first_tokens=4, turn_tokens=2, max_tokens=2, think_s=0.0)
    client = FakeClient(takes_s=6.0)
    schedule = at_offsets(synthetic_sessions("measured", 1, 1, shape, VOCAB), [0.0])
    records = await run_open(client, schedule, PATIENCE, Watching())
    assert [record.outcome for record in records] == [Outcome.OK, Outcome.TIMEOUT_TOTAL]
    assert records[1].sent_s is None


async def test_a_closed_loop_has_as_many_requests_in_flight_as_users() -> None:
    client = FakeClient(together=3)
    records = await run_closed(
        client, conversations(REQUESTS[:12]), ClosedLoop(3, until_s=1.0), PATIENCE, Watching()
    )
    assert client.most == 3
    assert sorted(client.sent) == sorted(request.request_id for request in REQUESTS[:12])
    assert not any(record.warmup for record in records)


async def test_a_closed_loop_says_what_was_warm_up_and_ends_by_time() -> None:
    client = FakeClient()
    warm = await run_closed(
        client, conversations(REQUESTS[:2]), ClosedLoop(1, 5.0, warmup_s=1.0), PATIENCE, Watching()
    )
    assert [record.warmup for record in warm] == [True, True]
    client.now_s = 5.0
    late = await run_closed(
        client, conversations(REQUESTS[:2]), ClosedLoop(1, 5.0), PATIENCE, Watching()
    )
    assert late == []


def test_warm_up_comes_before_the_measured_load() -> None:
    warmup, measured = at_offsets(REQUESTS[:1], [0.5]), at_offsets(REQUESTS[1:2], [0.5])
    whole = after_warmup(warmup, measured, 2.0)
    assert [(due.at_s, due.warmup) for due in whole] == [(0.5, True), (2.5, False)]
    with pytest.raises(ConfigError, match="warm-up"):
        after_warmup(warmup, measured, 0.5)


def test_no_request_is_sent_twice() -> None:
    with pytest.raises(ConfigError, match="3 arrivals"):
        at_offsets(REQUESTS[:2], [0.0, 1.0, 2.0])


def test_turns_of_a_session_are_one_conversation() -> None:
    shape = SessionShape(turns=2, first_tokens=4, turn_tokens=2, max_tokens=2, think_s=0.0)
    sessions = synthetic_sessions("measured", 1, 2, shape, VOCAB)
    found = conversations([*sessions, *REQUESTS[:2]])
    assert [len(turns) for turns in found] == [2, 2, 1, 1]
    assert at_offsets(sessions, [1.0]) == [Due(1.0, tuple(sessions[:2]))]
