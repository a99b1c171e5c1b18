"""The parts of one request's time, by what its server told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.measure.latency import ttft_user
from splitserve.lab.measure.parts import (
    Part,
    bytes_s,
    gap_parts,
    grouped,
    handoff_s,
    ttft_parts,
    unexplained,
)

WHOLE = {"admission_ms": 4.0, "room_wait_ms": 3.0, "queue_time_ms": 30.0}
SPLIT = {
    "admission_ms": 12.0,
    "room_wait_ms": 3.0,
    "grant_time_ms": 7.0,
    "queue_time_ms": 30.0,
    "prefill_queue_time_ms": 30.0,
    "prefill_time_ms": 100.0,
    "kv_handoff_ms": 20.0,
    "kv_handoff_upper_ms": 28.0,
    "decode_first_step_ms": 8.0,
}


def record(
    metrics: dict[str, float] | None, *, first_s: float = 0.2, outcome: Outcome = Outcome.OK
) -> RequestRecord:
    return RequestRecord(
        request_id="r",
        arm="a",
        run="0",
        intended_s=0.0,
        sent_s=0.002,
        first_byte_s=first_s,
        events=[(first_s, 1), (first_s + 0.03, 1)],
        ended_s=1.0,
        outcome=outcome,
        counting=Counting.IDS,
        metrics=metrics,
    )


def in_ms(parts: dict[Part, float] | None) -> dict[Part, float]:
    assert parts is not None
    return {part: round(1000 * seconds, 6) for part, seconds in parts.items()}


def test_a_whole_request_waits_is_queued_and_computed() -> None:
    assert in_ms(ttft_parts(record(WHOLE | {"time_to_first_token_ms": 160.0}))) == {
        Part.LAG: 2,
        Part.GATEWAY: 1,
        Part.ROOM: 3,
        Part.RETRIES: 0,
        Part.QUEUE: 30,
        Part.PREFILL: 160,
        Part.RESIDUAL: 4,
    }


def test_a_hand_off_after_the_first_token_is_in_the_gap_after_it() -> None:
    made = record(SPLIT)
    parts = in_ms(ttft_parts(made))
    assert parts[Part.GRANT] == 7
    assert parts.keys().isdisjoint({Part.HANDOFF, Part.STEP})
    assert in_ms(gap_parts(made)) == {Part.HANDOFF: 20, Part.STEP: 8, Part.RESIDUAL: 2}


def test_a_hand_off_before_the_first_token_is_part_of_ttft() -> None:
    made = record(SPLIT | {"first_token_after_handoff": 1.0})
    parts = in_ms(ttft_parts(made))
    assert (parts[Part.HANDOFF], parts[Part.STEP], parts[Part.RESIDUAL]) == (20, 8, 28)
    assert gap_parts(made) is None


def test_a_worker_that_tells_no_queue_has_one_part_for_both() -> None:
    told = {"admission_ms": 1.0, "prefill_call_ms": 150.0, "kv_handoff_upper_ms": 28.0}
    parts = in_ms(ttft_parts(record(told)))
    assert parts[Part.CALL] == 150
    assert handoff_s(record(told)) == pytest.approx(0.028)


def test_the_queue_of_a_server_that_is_no_gateway_of_ours_may_be_a_wait_for_kv() -> None:
    told = {"queue_time_ms": 30.0, "time_to_first_token_ms": 100.0}
    parts = in_ms(ttft_parts(record(told)))
    assert parts[Part.QUEUE_OR_KV] == 30
    assert grouped({Part.QUEUE_OR_KV: 0.03}) == {"queue": 0.03}
    assert bytes_s(record(told)) is None


@pytest.mark.parametrize(
    "silent",
    [record(None), record({"tokens_per_second": 9.0}), record(SPLIT, outcome=Outcome.TRUNCATED)],
    ids=["nothing told", "no time of the prompt", "failed"],
)
def test_nothing_is_made_up(silent: RequestRecord) -> None:
    assert ttft_parts(silent) is None
    assert unexplained([silent]) is None


@given(st.dictionaries(st.sampled_from(sorted(SPLIT)), st.floats(0, 1e4)), st.booleans())
def test_parts_and_groups_add_up_to_what_the_client_saw(
    told: dict[str, float], waited: bool
) -> None:
    made = record(told | {"first_token_after_handoff": float(waited)})
    parts = ttft_parts(made)
    if parts is not None:
        assert sum(parts.values()) == pytest.approx(ttft_user(made))
        assert sum(grouped(parts).values()) == pytest.approx(ttft_user(made))


def test_accounting_stands_within_five_milliseconds_or_three_percent() -> None:
    def left(rest_ms: float, ttft_ms: float) -> str | None:
        prefill_ms = ttft_ms - 2 - rest_ms
        told = {"queue_time_ms": 0.0, "time_to_first_token_ms": prefill_ms}
        return unexplained([record(told, first_s=ttft_ms / 1000)] * 3)

    assert left(4.9, 100) is None
    assert left(-4.9, 100) is None
    assert left(29, 1000) is None
    assert left(31, 1000) == "the median residual of 3 requests is 31 ms, more than 30 ms"
    assert left(-6, 100) is not None
