"""What a run's numbers come to, on samples made by hand."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.made_records import record
from splitserve.bench.compare import Outcome
from splitserve.bench.load import LoadPlan, error_of, gaps_of, requests_of, tokens_of
from splitserve.bench.quantile import quantile
from splitserve.bench.scrape import Handoffs
from splitserve.bench.summary import Summary, summarise
from splitserve.cli.demo import conclusions
from splitserve.lab.load.record import Counting
from splitserve.lab.load.record import Outcome as Failure

PLAN = LoadPlan(rate=2.0, duration_s=30.0, prompt_tokens=8, max_tokens=4, vocab_size=1000)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0.001, 1.0))
def test_a_quantile_is_the_smallest_value_that_covers_its_share(
    values: list[float], q: float
) -> None:
    found = quantile(values, q)
    assert found in values
    assert sum(value <= found for value in values) >= q * len(values) - 1e-9
    assert sum(value < found for value in values) < q * len(values)


def test_the_quantile_of_nothing_is_not_a_number() -> None:
    assert math.isnan(quantile([], 0.5))


def test_the_same_plan_gives_the_same_prompts_and_another_seed_others() -> None:
    assert requests_of(PLAN, 3) == requests_of(PLAN, 3)
    assert requests_of(replace(PLAN, seed=1), 3) != requests_of(PLAN, 3)


def test_prompts_share_no_prefix() -> None:
    firsts = {request.prompt[:4] for request in requests_of(PLAN, 50)}
    assert len(firsts) == 50


def test_tokens_of_one_event_share_its_gap() -> None:
    one = record(0.0, 0.5, 0.6)
    one.events = [(0.5, 1), (0.6, 4)]
    assert gaps_of(one) == pytest.approx([0.025] * 4)
    assert tokens_of(one) == 5


def test_a_server_that_counts_no_tokens_has_gaps_between_its_chunks() -> None:
    one = record(0.0, 0.5, 0.6)
    one.counting = Counting.EVENTS
    assert gaps_of(one) == pytest.approx([0.1])


def test_an_error_is_told_with_its_status() -> None:
    refused = record(0.0, error="no")
    refused.outcome, refused.status = Failure.HTTP_ERROR, 503
    assert error_of(refused) == "503: no"
    unsaid = record(0.0)
    unsaid.outcome = Failure.TIMEOUT_FIRST
    assert error_of(unsaid) == "timeout_first"
    assert error_of(record(0.0)) == "no token came"
    assert error_of(record(0.0, 0.1)) == ""


def test_failures_are_counted_and_have_no_times() -> None:
    summary = summarise(
        [
            record(0.0, 0.5, 0.6, 0.9),
            record(1.0, error="no"),
            record(2.0, 2.1, error="the stream ended without [DONE]"),
            record(3.0),
        ]
    )
    assert (summary.requests, summary.errors, summary.first_error) == (4, 3, "no")
    assert summary.ttft_p50 == 0.5
    assert summary.worst_gap == pytest.approx(0.3)
    assert summary.first_gap_p50 == pytest.approx(0.1)
    assert summary.tokens == 3


def outcome(shape: str, itl_p99: float, ttft_p50: float, errors: int = 0) -> Outcome:
    summary = Summary(
        requests=10,
        errors=errors,
        first_error="gone" if errors else "",
        ttft_p50=ttft_p50,
        ttft_p99=ttft_p50 * 2,
        itl_p50=0.01,
        itl_p99=itl_p99,
        first_gap_p50=0.01,
        worst_gap=itl_p99,
        tokens=100,
    )
    return Outcome(shape, 0.5, summary, Handoffs(10, 1e6, 0.01, 0))


def test_a_gain_is_said_with_its_price() -> None:
    text = " ".join(conclusions(outcome("1P1D", 0.03, 0.9), outcome("2 colocated", 0.3, 0.6)))
    assert "cut p99 ITL from 300 ms to 30.0 ms (10.0 times)" in text
    assert "costs first tokens: p50 TTFT 600 ms colocated, 900 ms split" in text


def test_no_gain_is_said_plainly() -> None:
    text = " ".join(conclusions(outcome("1P1D", 0.3, 0.6), outcome("2 colocated", 0.3, 0.6)))
    assert "did not pay" in text
    assert "cut" not in text


def test_failed_requests_are_said_first() -> None:
    lines = conclusions(outcome("1P1D", 0.03, 0.6, errors=2), outcome("2 colocated", 0.3, 0.6))
    assert lines[0] == "1P1D: 2 requests failed (gone)."


def test_handoffs_of_a_run_are_the_difference_of_two_readings() -> None:
    run = Handoffs(12, 300.0, 0.5, 1).since(Handoffs(2, 100.0, 0.1, 1))
    assert (run.count, run.kv_bytes, run.fallbacks) == (10, 200.0, 0)
    assert run.mean_exposed_s == pytest.approx(0.04)
