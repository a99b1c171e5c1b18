"""The guide's advice, from what was measured: each row says what it is here."""

import pytest
from made_results import results

from lab.verdict.made_study import RULES, SPLIT, pairs, run, study
from splitserve.lab.report.advice import Advice, advise
from splitserve.lab.stats.shares import Count
from splitserve.lab.verdict.evidence import Evidence, Handoffs, Signals

SITUATIONS = (
    "ITL p99 misses its target under load",
    "long prompts at high concurrency",
    "chat or agent loops with growing context",
    "profile shows tokenising/parsing load on the CPU",
    "TTFT is the binding constraint",
    "KV transfer is slow",
    "low, bursty or latency-tolerant traffic",
)


def row(number: int, evidence: Evidence) -> Advice:
    return advise(results(evidence))[number]


def test_there_is_a_row_for_every_situation_of_the_guide() -> None:
    assert tuple(one.symptom for one in advise(results())) == SITUATIONS


def test_nothing_measured_is_nothing_advised() -> None:
    for one in advise(results(Evidence(rules=RULES))):
        assert one.present is None
        assert all("not measured" in told for told in one.measured)
        assert one.here.startswith("To measure it: ")


def test_a_missed_tail_that_the_split_keeps() -> None:
    found = row(0, study())
    assert found.present is True
    assert found.measured[0].startswith("tail ITL, single: 80 ms, [")
    assert "limit 50 ms" in found.measured
    assert "keeps it" in found.here


def test_a_missed_tail_that_the_split_misses_too() -> None:
    assert row(0, study(target=pairs(b=run(tail_itl_s=0.07)))).here.endswith("misses it too.")


def test_a_tail_that_fails_misses() -> None:
    found = row(0, study(target=pairs(a=run(tail_itl_s=float("inf")), b=run(**SPLIT))))
    assert found.present is True
    assert "∞" in found.measured[0]


def test_a_kept_tail_is_no_reason_to_split() -> None:
    assert (
        row(0, study(target=pairs(a=run(tail_itl_s=0.04, attained=Count(985, 1000))))).present
        is False
    )


@pytest.mark.parametrize(
    ("p95_s", "says"),
    [(0.05, "KV transfer is fast enough: split"), (0.5, "but KV transfer is slow")],
    ids=["fast", "slow"],
)
def test_long_prompts_are_advised_by_the_transfer(p95_s: float, says: str) -> None:
    handoffs = Handoffs(p95_s=(p95_s,) * 4, failed=())
    assert says in row(1, study(hard=pairs(b=run(**SPLIT)), handoffs=handoffs)).here


def test_long_prompts_without_a_gain_stay() -> None:
    assert row(1, study(hard=pairs())).present is False


@pytest.mark.parametrize(
    ("number", "signals", "present"),
    [
        (2, Signals(recomputed_share=0.8), True),
        (2, Signals(recomputed_share=0.1), False),
        (3, Signals(frontend_cpu=0.99), True),
        (3, Signals(frontend_share=0.05), False),
    ],
    ids=["turns anew", "turns kept", "front end full", "front end idle"],
)
def test_signals_answer_their_rows(number: int, signals: Signals, present: bool) -> None:
    found = row(number, study(signals=signals))
    assert found.present is present
    assert any(one.endswith(" %") for one in found.measured)


def test_slow_transfer_and_light_traffic_follow_their_readings() -> None:
    slow = study(handoffs=Handoffs(p95_s=(0.5,) * 4, failed=()))
    assert row(5, slow).here == "Fix the transfer, or stay colocated."
    light = study(target=pairs(a=run(tail_itl_s=0.01, ttft_s=0.1, attained=run().attained)))
    assert row(6, light).present is False


def test_a_limit_that_too_many_requests_miss_is_missed_whatever_the_quantile_says() -> None:
    assert row(0, study(target=pairs(a=run(tail_itl_s=0.04, attained=Count(700, 1000))))).present
