"""Hand-offs from two readings of a gateway's counters."""

import math

import pytest

from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.run.handoffs import run_handoffs
from splitserve.lab.stats.shares import Count


def reading(buckets: dict[str, float], **counts: float) -> dict[str, float]:
    made = {
        f'splitserve_handoff_exposed_seconds_bucket{{le="{le}"}}': n for le, n in buckets.items()
    }
    for way in ("split", "whole"):
        made[f'splitserve_placements_total{{way="{way}"}}'] = counts.get(way, 0.0)
    made['splitserve_fallback_total{reason="lost",rung="retry"}'] = counts.get("failed", 0.0)
    return made


BEFORE = reading({"0.1": 50, "0.5": 50, "+Inf": 50}, split=50)


def test_only_what_happened_during_the_run_counts() -> None:
    found = run_handoffs(BEFORE, reading({"0.1": 60, "0.5": 150, "+Inf": 150}, split=150))
    assert found is not None
    assert (found.done, found.p95_s, found.failed) == (100, 0.5, Count(0, 100))


def test_a_failed_hand_off_is_later_than_any_other() -> None:
    after = reading({"0.1": 140, "0.5": 140, "+Inf": 140}, split=150, failed=10)
    found = run_handoffs(BEFORE, after)
    assert found is not None
    assert math.isinf(found.p95_s)
    assert found.failed == Count(10, 100)
    assert sum(found.reasons.values()) == 10


def test_prompts_that_decode_computed_are_told_apart() -> None:
    after = reading({"0.1": 60, "0.5": 60, "+Inf": 60}, split=60, whole=30)
    found = run_handoffs(BEFORE, after)
    assert found is not None
    assert found.whole == Count(30, 40)


def test_a_server_that_counts_no_hand_offs_has_none() -> None:
    assert run_handoffs({}, {"vllm:num_requests_running": 1.0}) is None
    assert run_handoffs(BEFORE, BEFORE) is None


def answered(handoff_ms: float | None, **more: bool) -> RequestRecord:
    return RequestRecord(
        request_id="r",
        arm="b",
        run="0",
        intended_s=0.0,
        sent_s=0.0,
        first_byte_s=0.1,
        events=[(0.1, 1), (0.2, 1)],
        ended_s=0.2,
        outcome=Outcome.OK,
        counting=Counting.IDS,
        metrics=None if handoff_ms is None else {"kv_handoff_ms": handoff_ms},
        **more,
    )


def test_what_answers_tell_is_better_than_a_bucket() -> None:
    after = reading({"0.1": 140, "0.5": 150, "+Inf": 150}, split=150)
    told = [answered(float(k)) for k in range(1, 101)]
    found = run_handoffs(BEFORE, after, [*told, answered(None), answered(9000.0, warmup=True)])
    assert found is not None
    assert (found.p50_s, found.p95_s) == (0.05, 0.095)
    assert found.share_of_ttft == pytest.approx(0.505)


def test_a_failed_one_is_later_than_those_that_answers_tell_of() -> None:
    after = reading({"0.1": 150, "0.5": 150, "+Inf": 150}, split=150, failed=6)
    found = run_handoffs(BEFORE, after, [answered(1.0)] * 94)
    assert found is not None
    assert found.p50_s == 0.001
    assert math.isinf(found.p95_s)
