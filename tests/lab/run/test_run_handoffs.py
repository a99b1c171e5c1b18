"""Hand-offs from two readings of a gateway's counters."""

import math

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
