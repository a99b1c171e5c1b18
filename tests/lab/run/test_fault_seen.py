"""What is told of a fault, from records and counters."""

from typing import Any

import pytest

from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.measure.attainment import Slo
from splitserve.lab.run.faults.seen import (
    AFTER,
    BEFORE,
    UNDER_WAY,
    WHILE,
    FaultSeen,
    counted_between,
    seen_of,
)

SLO = Slo(ttft_s=1.0)


def record(due_s: float, ended_s: float, outcome: Outcome = Outcome.OK, **more: Any) -> Any:
    return RequestRecord(
        request_id=f"{due_s}",
        arm="split",
        run="1",
        intended_s=due_s,
        sent_s=due_s,
        first_byte_s=due_s + 0.1,
        events=[(due_s + 0.1, 1)],
        ended_s=ended_s,
        outcome=outcome,
        counting=Counting.IDS,
        **more,
    )


def seen(*records: RequestRecord, whole_s: float | None = 20.0) -> FaultSeen:
    return seen_of("kill_decode", "it was killed", 10.0, whole_s, records, SLO, {})


def test_every_request_is_in_one_period_by_when_it_was_due_and_ended() -> None:
    found = seen(record(1, 2), record(9, 11), record(10.5, 11), record(19, 22), record(21, 22))
    periods = {part.name: part.requests for part in found.periods}
    assert periods == {BEFORE: 1, UNDER_WAY: 1, WHILE: 2, AFTER: 1}


def test_without_a_recovery_nothing_was_due_afterwards() -> None:
    found = seen(record(11, 12), record(90, 91), whole_s=None)
    assert [part.requests for part in found.periods] == [0, 0, 2, 0]


def test_the_first_good_answer_is_to_a_request_that_was_due_after_the_fault() -> None:
    late = record(10.2, 12)
    late.events = [(11.9, 1)]
    found = seen(record(9.9, 10.1), late, record(12, 13.5), record(14, 14.2))
    assert found.first_good_s == pytest.approx(3.5)
    assert seen(record(9, 9.5)).first_good_s is None


@pytest.mark.parametrize("outcome", [Outcome.HTTP_ERROR, Outcome.INBAND_ERROR])
def test_a_status_or_an_error_in_the_stream_tells_the_client(outcome: Outcome) -> None:
    found = seen(record(9, 11, outcome, status=503, error="the decode worker was lost"))
    assert (found.told, found.silent) == (1, 0)
    assert found.errors == {f"{outcome.value} 503: the decode worker was lost": 1}


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.TRUNCATED,
        Outcome.BAD_STREAM,
        Outcome.CONNECT_ERROR,
        Outcome.TIMEOUT_FIRST,
        Outcome.TIMEOUT_GAP,
        Outcome.TIMEOUT_TOTAL,
        Outcome.SHORT,
        Outcome.COUNT_MISMATCH,
    ],
)
def test_a_cut_stream_silence_or_another_answer_does_not(outcome: Outcome) -> None:
    found = seen(record(9, 11, outcome), record(9, 11, Outcome.NO_USAGE))
    assert (found.told, found.silent) == (0, 1)


def test_what_the_client_never_sent_is_nobodys_failure() -> None:
    found = seen(record(11, 11, Outcome.NEVER_SENT))
    assert (found.told, found.silent) == (0, 0)
    assert sum(part.requests for part in found.periods) == 0


def test_counters_of_failures_are_told_by_what_they_grew() -> None:
    lost, full = (f'splitserve_fallback_total{{reason="{r}"}}' for r in ("lost", "full"))
    before = {lost: 1.0, full: 4.0, "process_cpu_seconds_total": 1.0}
    after = {lost: 3.0, full: 4.0, "process_cpu_seconds_total": 9.0}
    assert counted_between(before, after) == {lost: 2}
    assert counted_between({}, {}) == {}
