"""Warm-up by MSER-5, over runs and pairs."""

import random

import msgspec
import pytest
from made_records import run_of

from splitserve.lab.measure.outcomes import measured
from splitserve.lab.plan.study import Metrics
from splitserve.lab.run.warmup import lengthened, settling, unsettled

METRICS = Metrics(decided_at=0.5)
FIXED = msgspec.structs.replace(METRICS, warmup_rule="fixed")


def noise(count: int) -> list[float]:
    draw = random.Random(7)
    return [1 + draw.gauss(0, 0.05) for _ in range(count)]


def slow_start(count: int, slow: int) -> list[float]:
    return [wait + 3 * max(0.0, 1 - at / slow) for at, wait in enumerate(noise(count))]


def test_a_slow_start_becomes_warm_up_and_nothing_after_it() -> None:
    records = run_of(slow_start(200, 30))
    ids = settling(records, METRICS)
    assert {f"r{at}" for at in range(20)} <= ids <= {f"r{at}" for at in range(60)}
    kept = measured(lengthened(records, ids))
    assert [one.request_id for one in kept] == [f"r{at}" for at in range(len(ids), 200)]


@pytest.mark.parametrize(
    ("records", "metrics"),
    [
        (run_of(slow_start(200, 30)), FIXED),
        (run_of(slow_start(200, 30), warm=False), METRICS),
        (run_of([5.0] * 5 + [1.0] * 15), METRICS),
    ],
    ids=["fixed", "no warm-up", "too few to tell"],
)
def test_the_planned_warm_up_stands(records: list, metrics: Metrics) -> None:
    assert settling(records, metrics) == frozenset()
    assert not unsettled(records, metrics)


def test_no_cut_takes_what_the_decided_quantile_needs() -> None:
    records = run_of(slow_start(110, 30))
    p90 = msgspec.structs.replace(METRICS, decided_at=0.9)
    assert len(settling(records, METRICS)) > 10
    assert len(settling(records, p90)) == 10


def test_a_warm_up_that_takes_more_than_half_is_unsettled() -> None:
    waits = [wait + max(0.0, 5 - 5 * at / 190) for at, wait in enumerate(noise(200))]
    assert unsettled(run_of(waits), METRICS)
    assert not unsettled(run_of(waits), FIXED)
    assert settling(run_of(waits), METRICS) == frozenset()


def test_a_short_run_is_never_called_unsettled() -> None:
    assert not unsettled(run_of([5 - at / 5 for at in range(24)]), METRICS)


def test_waits_that_grow_are_a_result_and_no_warm_up() -> None:
    waits = [wait + at / 20 for at, wait in enumerate(noise(200))]
    assert not unsettled(run_of(waits), METRICS)
