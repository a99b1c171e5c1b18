"""The share of requests that met the SLO."""

import random

import pytest

from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.measure.attainment import Slo, attainment, goodput, is_good
from splitserve.lab.measure.tail import TailRule


def record(
    ttft_s: float, gap_s: float | None, outcome: Outcome = Outcome.OK, intended_s: float = 0.0
) -> RequestRecord:
    first_s = intended_s + ttft_s
    events = [(first_s, 1)] + ([] if gap_s is None else [(first_s + gap_s, 1)])
    return RequestRecord(
        request_id="r",
        arm="A",
        run="1",
        intended_s=intended_s,
        sent_s=intended_s,
        first_byte_s=None,
        events=events,
        ended_s=events[-1][0],
        outcome=outcome,
        counting=Counting.IDS,
    )


SLO = Slo(ttft_s=0.5, itl_s=0.125)
FIVE = [
    record(0.25, 0.0625),
    record(0.75, 0.0625),
    record(0.25, 0.25),
    record(0.5, 0.125),
    record(0.25, 0.0625, Outcome.TRUNCATED),
]


def test_a_limit_is_met_when_equal_and_failures_are_asked_requests() -> None:
    assert [is_good(one, SLO) for one in FIVE] == [True, False, False, True, False]
    assert attainment(FIVE, SLO) == pytest.approx(0.4)
    assert goodput(FIVE, SLO, 10.0) == pytest.approx(0.2)


def test_the_order_of_requests_does_not_matter() -> None:
    for seed in range(5):
        shuffled = random.Random(seed).sample(FIVE, len(FIVE))
        assert attainment(shuffled, SLO) == pytest.approx(0.4)


def test_what_the_client_never_sent_is_not_the_server_s_failure() -> None:
    never = record(0.1, None, Outcome.NEVER_SENT)
    assert attainment([*FIVE, never], SLO) == pytest.approx(0.4)
    assert attainment([never], SLO) is None


def test_one_token_answers_have_no_gap_to_miss() -> None:
    assert is_good(record(0.25, None), SLO)
    assert not is_good(record(0.75, None), SLO)


@pytest.mark.parametrize(
    ("outcome", "good"),
    [(Outcome.SHORT, True), (Outcome.NO_USAGE, True), (Outcome.COUNT_MISMATCH, False)],
)
def test_degraded_answers_count_as_the_table_says(outcome: Outcome, good: bool) -> None:
    assert is_good(record(0.25, 0.0625, outcome), SLO) is good


def test_an_answer_without_tokens_is_not_good() -> None:
    empty = record(0.25, None)
    empty.events = [(0.25, 0)]
    assert not is_good(empty, Slo())


def test_the_whole_answer_can_have_a_limit() -> None:
    assert is_good(record(0.25, 0.25), Slo(end_to_end_s=0.5))
    assert not is_good(record(0.25, 0.5), Slo(end_to_end_s=0.5))


def test_fluidity_forgives_a_share_of_late_tokens() -> None:
    one = record(0.25, None)
    one.events = [(0.25 + 0.0625 * at + (0.5 if at > 4 else 0.0), 1) for at in range(10)]
    assert not is_good(one, Slo(ttft_s=0.5, itl_s=0.0625, rule=TailRule.MAX))
    assert is_good(one, Slo(ttft_s=0.25, itl_s=0.0625, fluid_share=0.9))
    assert not is_good(one, Slo(ttft_s=0.25, itl_s=0.0625, fluid_share=0.95))
    assert is_good(one, Slo(itl_s=0.0625, fluid_share=0.9))
