"""The times of one request, on scripted streams with known answers."""

import math

import pytest

from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.measure.latency import (
    answer_wait,
    end_to_end_service,
    end_to_end_user,
    first_gap,
    gaps,
    rebinned,
    time_per_token,
    token_events,
    token_gaps,
    tokens_per_event,
    ttft_service,
    ttft_user,
)
from splitserve.lab.measure.outcomes import counted, measured, tally
from splitserve.lab.measure.tail import (
    TailRule,
    fluidity,
    max_gap,
    stall,
    tail_gap,
    tail_itl,
    tail_rule,
)


def record(
    events: list[tuple[float, int]],
    outcome: Outcome = Outcome.OK,
    counting: Counting = Counting.IDS,
    intended_s: float = 0.0,
    sent_s: float | None = 0.0,
    output_tokens: int | None = None,
    answer_s: float | None = None,
    warmup: bool = False,
) -> RequestRecord:
    return RequestRecord(
        request_id="r",
        arm="A",
        run="1",
        intended_s=intended_s,
        sent_s=sent_s,
        first_byte_s=None,
        events=events,
        ended_s=events[-1][0] if events else 0.0,
        outcome=outcome,
        counting=counting,
        output_tokens=output_tokens,
        answer_s=answer_s,
        warmup=warmup,
    )


def frozen(tokens_per_event: int) -> RequestRecord:
    """200 tokens at 20 ms each, and three freezes of 500 ms."""
    events, now_s = [(0.0, tokens_per_event)], 0.0
    count = 200 // tokens_per_event
    for at in range(1, count):
        now_s += 0.5 if at in (count // 4, count // 2, count * 3 // 4) else 0.02 * tokens_per_event
        events.append((now_s, tokens_per_event))
    return record(events)


def test_a_freeze_is_in_the_tail_and_not_in_the_mean() -> None:
    one = frozen(1)
    assert tail_itl(one, TailRule.Q99) == pytest.approx(0.5)
    assert time_per_token(one) == pytest.approx(0.027, abs=0.0005)
    assert len(gaps(one) or ()) == 199


def test_putting_tokens_together_hides_no_freeze() -> None:
    coarse = frozen(4)
    assert tail_rule(len(gaps(coarse) or ())) is TailRule.Q95
    assert max_gap(coarse) == pytest.approx(0.5)
    assert tail_gap(gaps(coarse) or [], TailRule.Q99) == pytest.approx(0.5)
    assert sorted(gaps(coarse) or [])[24] == pytest.approx(0.08)


def test_chunks_are_not_tokens() -> None:
    one = record([(0.05, 0), (0.1, 1), (0.2, 4), (0.3, 4)])
    assert ttft_service(one) == pytest.approx(0.1)
    assert time_per_token(one) == pytest.approx(0.025)
    assert token_gaps(one) == pytest.approx([0.025] * 8)
    assert gaps(one) == pytest.approx([0.1, 0.1])
    assert tokens_per_event(one) == 3


def test_without_a_count_there_are_gaps_between_chunks_and_none_between_tokens() -> None:
    one = record([(0.1, 1), (0.2, 1)], Outcome.NO_USAGE, Counting.EVENTS)
    assert gaps(one) == pytest.approx([0.1])
    assert (token_gaps(one), time_per_token(one), tokens_per_event(one)) == (None, None, None)


def test_the_server_s_count_wins_over_the_number_of_chunks() -> None:
    events = [(0.1071, 1), *[(0.2 + 0.04 * at, 1) for at in range(125)], (6.4708, 1)]
    one = record(events, Outcome.COUNT_MISMATCH, Counting.EVENTS, output_tokens=1000)
    assert time_per_token(one) == pytest.approx((6.4708 - 0.1071) / 999)
    assert (gaps(one), tail_itl(one, TailRule.Q99), max_gap(one)) == (None, None, None)
    assert ttft_user(one) == pytest.approx(0.1071)


def test_what_carries_no_token_starts_and_ends_nothing() -> None:
    one = record([(0.01, 0), (0.12, 1), (0.2, 0), (0.3, 1), (0.9, 0)], sent_s=0.02)
    assert token_events(one) == [(0.12, 1), (0.3, 1)]
    assert ttft_user(one) == pytest.approx(0.12)
    assert ttft_service(one) == pytest.approx(0.1)
    assert end_to_end_user(one) == pytest.approx(0.3)
    assert end_to_end_service(one) == pytest.approx(0.28)
    assert gaps(one) == pytest.approx([0.18])


def test_a_user_s_wait_counts_from_when_the_request_was_due() -> None:
    late = record([(5.0, 1)], intended_s=1.0, sent_s=4.0)
    assert (ttft_user(late), ttft_service(late), late.lag_s) == (4.0, 1.0, 3.0)


def test_thinking_ends_ttft_and_not_the_wait_for_an_answer() -> None:
    thought = record([(0.05, 0), (0.12, 1), (0.9, 1)], answer_s=0.9)
    assert (ttft_user(thought), answer_wait(thought)) == (0.12, 0.9)
    assert answer_wait(record([(0.12, 1)])) is None


def test_the_first_gap_shows_what_an_early_first_token_hides() -> None:
    assert first_gap(record([(0.1, 1), (0.6, 1), (0.62, 1)])) == pytest.approx(0.5)
    assert first_gap(record([(0.1, 1)])) is None


FAILED = [
    Outcome.TRUNCATED,
    Outcome.BAD_STREAM,
    Outcome.INBAND_ERROR,
    Outcome.HTTP_ERROR,
    Outcome.CONNECT_ERROR,
    Outcome.TIMEOUT_FIRST,
    Outcome.TIMEOUT_GAP,
    Outcome.TIMEOUT_TOTAL,
]


@pytest.mark.parametrize("outcome", FAILED)
def test_a_failure_is_infinite_however_fast_its_tokens_came(outcome: Outcome) -> None:
    failed = record([(0.1, 1), (0.2, 1)], outcome)
    for measure in (ttft_user, ttft_service, end_to_end_user, end_to_end_service, answer_wait):
        assert measure(failed) == math.inf
    assert (first_gap(failed), max_gap(failed)) == (math.inf, math.inf)
    assert tail_itl(failed, TailRule.Q99) == math.inf
    assert (gaps(failed), time_per_token(failed)) == (None, None)


def test_one_token_has_no_time_per_token_and_no_gap() -> None:
    one = record([(0.1, 1)])
    assert (time_per_token(one), tail_itl(one, TailRule.MAX), gaps(one)) == (None, None, [])
    five = record([(0.1 + 0.02 * at, 1) for at in range(5)])
    assert time_per_token(five) == pytest.approx(0.02)
    assert time_per_token(record([(0.1, 4)])) is None


def test_an_answer_without_tokens_was_waited_for_in_vain() -> None:
    assert ttft_user(record([(0.1, 0)])) == math.inf


@pytest.mark.parametrize(
    ("count", "rule"),
    [(1, "max"), (19, "max"), (20, "q95"), (99, "q95"), (100, "q99"), (500, "q99")],
)
def test_the_tail_is_the_highest_quantile_that_the_gaps_carry(count: int, rule: str) -> None:
    assert tail_rule(count) == rule


def test_a_tail_is_a_gap_that_occurred() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert tail_gap(values, TailRule.Q99) == 99
    assert tail_gap(values, TailRule.Q95) == 95
    assert tail_gap(values, TailRule.MAX) == 100
    assert tail_gap([3.0], TailRule.Q99) == 3.0


def test_a_single_freeze_shows_in_the_longest_gap_only() -> None:
    events = [(0.02 * at + (0.5 if at > 99 else 0.0), 1) for at in range(200)]
    assert tail_itl(record(events), TailRule.Q99) == pytest.approx(0.02)
    assert max_gap(record(events)) == pytest.approx(0.52)


def test_stall_counts_what_exceeds_the_limit() -> None:
    count, excess = stall([0.02, 0.05, 0.06, 0.15], 0.05)
    assert (count, excess) == (2, pytest.approx(0.11))


def test_fluidity_carries_slack_and_counts_one_freeze_once() -> None:
    on_time = [(0.1 * at, 1) for at in range(10)]
    assert fluidity(on_time, 0.0, 0.0, 0.1 + 1e-9) == 1.0
    early_then_pause = [(0.0, 5), (0.5, 5)]
    assert fluidity(early_then_pause, 0.0, 0.1, 0.1) == 1.0
    freeze = [*((0.1 * at, 1) for at in range(5)), *((2.0 + 0.1 * at, 1) for at in range(5))]
    assert fluidity(freeze, 0.0, 0.0, 0.1 + 1e-9) == pytest.approx(0.9)
    assert fluidity([], 0.0, 1.0, 1.0) == 0.0


def test_rebinning_keeps_tokens_and_last_times() -> None:
    fine = [(0.1 * at, 1) for at in range(1, 8)]
    assert rebinned(fine, 3) == [(0.1, 1), (0.4, 3), (pytest.approx(0.7), 3)]
    assert rebinned(fine[:6], 3)[-1] == (pytest.approx(0.6), 2)
    assert rebinned(fine, 1) == fine
    assert rebinned([], 4) == []


def test_tokens_of_failed_answers_are_told_apart() -> None:
    fine = [record([(0.1, 1), (0.2, 2)], output_tokens=3) for _ in range(7)]
    others = [
        record([], Outcome.HTTP_ERROR),
        record([(0.1, 1), (0.2, 1), (0.3, 1)], Outcome.TRUNCATED),
        record([], Outcome.TIMEOUT_FIRST),
        record([], Outcome.NEVER_SENT, sent_s=None),
    ]
    found = tally(fine + others)
    assert (found.failed, found.degraded) == (3, 0)
    assert (found.completed_tokens, found.partial_tokens) == (21, 3)
    assert found.never_sent_share == pytest.approx(1 / 11)
    assert found.outcomes[Outcome.OK] == 7
    assert len(counted(fine + others)) == 10


def test_warm_up_is_left_out() -> None:
    assert measured([record([], warmup=True), record([(0.1, 1)])]) == [record([(0.1, 1)])]
