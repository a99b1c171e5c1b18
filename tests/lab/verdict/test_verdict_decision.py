"""The decision: one favourable study, spoiled one thing at a time."""

import math
from dataclasses import replace
from typing import Any

import pytest
from made_study import INTENDED, RULES, SPLIT, pairs, proof, run, study

from splitserve.lab.stats.shares import Count
from splitserve.lab.verdict.decide import decide
from splitserve.lab.verdict.evidence import Checks, Evidence, Handoffs, Signals
from splitserve.lab.verdict.outcome import EXIT_CODES, Outcome, Status
from splitserve.lab.verdict.rules import (
    Profile,
    Question,
    Resources,
    Slo,
    Verification,
)

GOOD = study()
NO_HANDOFF_FAILED = (Count(0, 1000),) * 4
UNSURE = (0.6, -0.5, 0.4, -0.7, 0.5, -0.3, 0.2, -0.6)


def rules(**changes: Any) -> Evidence:
    return study(rules=replace(RULES, **changes))


def checks(**changes: Any) -> Evidence:
    return study(checks=replace(GOOD.checks, **changes))


def test_a_whole_and_favourable_study_is_adopted_as_a_candidate() -> None:
    verdict = decide(GOOD)
    assert (verdict.outcome, verdict.exit_code, verdict.weak) == (Outcome.ADOPT, 0, False)
    assert {c.status for c in verdict.clauses} == {Status.HOLDS}
    assert all(c.evidence for c in verdict.clauses)
    assert not any(c.lacking for c in verdict.clauses)
    assert "experimental" in verdict.reason


def test_better_without_meeting_the_slo_is_a_weak_candidate() -> None:
    verdict = decide(rules(slo=Slo(2.0, 0.05, attainment=0.99)))
    assert (verdict.outcome, verdict.weak) == (Outcome.ADOPT, True)
    assert "not shown to meet" in verdict.reason


def test_exit_codes_are_those_of_the_design() -> None:
    assert {o.name: code for o, code in EXIT_CODES.items()} == {
        "ADOPT": 0,
        "KEEP_SINGLE": 10,
        "TRY_CHUNKED": 11,
        "INCONCLUSIVE": 20,
        "INVALID": 30,
    }


VOID = {
    "no evidence at all": Evidence(rules=RULES),
    "no preflight": checks(preflight=None),
    "preflight failed": checks(preflight=False),
    "plan changed": checks(plan_unchanged=False),
    "desk study": rules(verification=Verification.DESK),
    "mixed study": rules(verification=Verification.MIXED),
    "too few pairs": study(target=GOOD.target[:7]),
    "no A/A pairs": study(control=()),
    "one A/A pair": study(control=GOOD.control[:1]),
    "A/A differs": study(control=pairs(b=run(tail_itl_s=0.120), count=4)),
    "A/A fails in attainment": study(control=pairs(b=run(attained=Count(500, INTENDED)), count=6)),
    "caches differ": study(signals=Signals(cached_a=0.0, cached_b=0.2)),
    "KV unused": study(handoffs=Handoffs((0.05, 0.05), NO_HANDOFF_FAILED, local_tokens=900.0)),
}


@pytest.mark.parametrize("evidence", VOID.values(), ids=VOID.keys())
def test_a_study_that_may_not_speak_is_invalid(evidence: Evidence) -> None:
    verdict = decide(evidence)
    assert (verdict.outcome, verdict.exit_code) == (Outcome.INVALID, 30)


KEPT = {
    "slower": study(target=pairs(b=run(tail_itl_s=0.120, attained=Count(500, INTENDED)))),
    "no difference": study(target=pairs()),
    "better but below interest": study(target=pairs(b=run(**{**SPLIT, "tail_itl_s": 0.075}))),
    "faster, and no more requests are good": study(
        target=pairs(b=run(**{**SPLIT, "attained": Count(700, INTENDED)}))
    ),
    "TTFT far worse": study(target=pairs(b=run(**SPLIT, ttft_s=4.0))),
    "B fails more": study(target=pairs(b=run(**SPLIT, errors=Count(15, INTENDED)))),
    "KV over budget": study(handoffs=Handoffs((0.3, 0.31, 0.3), NO_HANDOFF_FAILED, 0.05, 0.5)),
    "KV fails": study(handoffs=Handoffs((0.05, 0.05), (Count(30, 1000),), 0.05, 0.5)),
    "KV not measured": study(handoffs=None),
    "KV share of TTFT": study(handoffs=Handoffs((0.05, 0.05), NO_HANDOFF_FAILED, 0.5, 0.5)),
    "retries hidden": checks(retries_disclosed=False),
    "retries not recorded": checks(retries_disclosed=None),
    "environment not captured": checks(captured=None),
    "environment changed": checks(environment_unchanged=False),
    "no second start": study(second_start=()),
    "second start differs": study(second_start=pairs(b=run(tail_itl_s=0.2), count=2)),
    "no rollback": study(rollback=None),
    "rollback failed": study(rollback=proof(processes_left=1)),
    "added capacity": rules(resources=Resources.ADDED),
    "asked about throughput": rules(question=Question.THROUGHPUT),
    "answers differ": study(signals=Signals(outputs_differ=Count(10, 100))),
    "events differ": study(signals=Signals(tokens_per_event_a=1.0, tokens_per_event_b=1.5)),
    "A has slack": study(target=pairs(a=run(tail_itl_s=0.02, ttft_s=0.5, attained=Count(1, 1)))),
}


@pytest.mark.parametrize("evidence", KEPT.values(), ids=KEPT.keys())
def test_one_missing_condition_keeps_the_single_configuration(evidence: Evidence) -> None:
    verdict = decide(evidence)
    assert (verdict.outcome, verdict.exit_code) == (Outcome.KEEP_SINGLE, 10)
    assert verdict.weak is False


def test_the_reason_names_the_first_failing_clause_and_only_what_it_lacks() -> None:
    verdict = decide(study(rollback=proof(ports_left_open=2)))
    assert verdict.reason == "Does not hold: one can go back (ports of the split are open)"


def test_wide_intervals_are_inconclusive_and_say_how_many_pairs_are_missing() -> None:
    verdict = decide(
        study(target=pairs(b=run(tail_itl_s=0.06, attained=Count(985, INTENDED)), wobble=UNSURE))
    )
    assert (verdict.outcome, verdict.exit_code) == (Outcome.INCONCLUSIVE, 20)
    assert verdict.more_pairs is not None
    assert verdict.more_pairs >= 1
    assert str(verdict.more_pairs) in verdict.reason


def test_more_pairs_are_not_asked_for_where_they_could_not_help() -> None:
    wide = pairs(b=run(tail_itl_s=0.06, attained=Count(985, INTENDED)), wobble=UNSURE)
    verdict = decide(study(target=wide, rules=replace(RULES, resources=Resources.ADDED)))
    assert (verdict.outcome, verdict.more_pairs) == (Outcome.KEEP_SINGLE, None)


def test_drift_leaves_it_undecided_even_when_all_clauses_hold() -> None:
    rising = [0.03 * i for i in range(8)]
    verdict = decide(study(target=pairs(b=run(**SPLIT), wobble=rising)))
    assert {c.status for c in verdict.clauses} == {Status.HOLDS}
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason.startswith("R18")


def test_no_difference_on_short_prompts_alone_is_inconclusive_and_hard_ones_decide() -> None:
    short = study(target=pairs(), short=pairs())
    alone = decide(short)
    assert alone.outcome is Outcome.INCONCLUSIVE
    assert alone.reason.startswith("R4")
    found = decide(replace(short, hard=pairs()))
    assert found.outcome is Outcome.KEEP_SINGLE
    assert found.reason.startswith("R5")


def test_short_light_traffic_keeps_the_single_configuration_that_has_slack() -> None:
    light = pairs(a=run(tail_itl_s=0.02, ttft_s=0.5, attained=Count(1000, INTENDED)))
    found = decide(study(target=light, short=light))
    assert found.outcome is Outcome.KEEP_SINGLE
    assert found.reason.startswith("R9")


def test_what_fails_for_certain_is_said_before_what_is_undecided() -> None:
    found = decide(study(target=pairs(), short=pairs(), rollback=proof(ports_left_open=1)))
    assert found.outcome is Outcome.KEEP_SINGLE
    assert found.reason.startswith("Does not hold: the target cell improves")


def test_chunked_prefill_that_does_as_much_is_tried_first() -> None:
    chunked = run(**SPLIT)
    found = decide(study(chunked=pairs(b=chunked), chunked_split=pairs(a=chunked)))
    assert (found.outcome, found.exit_code) == (Outcome.TRY_CHUNKED, 11)


def test_chunked_prefill_that_helps_less_does_not_stop_the_split() -> None:
    chunked = run(tail_itl_s=0.06)
    split = run(**SPLIT)
    found = decide(study(chunked=pairs(b=chunked), chunked_split=pairs(a=chunked, b=split)))
    assert found.outcome is Outcome.ADOPT


SMOKE = replace(RULES, profile=Profile.SMOKE, pairs=3)
CHUNKED = {"chunked": pairs(b=run(**SPLIT)), "chunked_split": pairs(a=run(**SPLIT))}


@pytest.mark.parametrize("extra", [{}, CHUNKED], ids=["would adopt", "would try chunked"])
def test_a_smoke_study_never_recommends_a_change(extra: dict[str, Any]) -> None:
    found = decide(study(rules=SMOKE, **extra))
    assert (found.outcome, found.exit_code) == (Outcome.INCONCLUSIVE, 20)


def test_a_smoke_study_may_keep_the_single_configuration_or_be_void() -> None:
    assert decide(study(rules=SMOKE, rollback=None)).outcome is Outcome.KEEP_SINGLE
    assert decide(study(rules=SMOKE, control=())).outcome is Outcome.INVALID


@pytest.mark.parametrize("broken", ["a", "b", "both"])
def test_a_split_whose_requests_fail_is_never_adopted(broken: str) -> None:
    dead = {
        "tail_itl_s": math.inf,
        "ttft_s": math.inf,
        "attained": Count(0, INTENDED),
        "errors": Count(INTENDED, INTENDED),
    }
    a = run(**dead) if broken in ("a", "both") else run()
    b = run(**dead) if broken in ("b", "both") else run(**SPLIT)
    found = decide(study(target=pairs(a=a, b=b)))
    assert (found.outcome is Outcome.ADOPT) == (broken == "a")
    assert all("nan" not in text for c in found.clauses for text in c.evidence)


def test_a_desk_study_is_never_adopted_whatever_its_profile() -> None:
    for profile in Profile:
        for resources in Resources:
            desk = rules(verification=Verification.DESK, profile=profile, resources=resources)
            assert decide(desk).outcome is Outcome.INVALID


def test_checks_that_were_not_made_are_not_taken_as_passed() -> None:
    found = decide(study(checks=Checks(preflight=True, plan_unchanged=True)))
    status = {c.name: c.status for c in found.clauses}
    assert status["valid"] is Status.HOLDS
    assert status["reproduce"] is Status.NOT_SHOWN
    assert status["guard_errors"] is Status.NOT_SHOWN
    assert found.outcome is Outcome.KEEP_SINGLE
