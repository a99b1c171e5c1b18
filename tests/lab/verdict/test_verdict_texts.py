"""The sentences of a clause: bounds that are none are said in words, and what was not measured says
what would measure it."""

import math

import pytest
from made_study import RULES, pairs, run, study

from splitserve.lab.stats.paired import Paired, differences, ratios
from splitserve.lab.verdict.decide import decide
from splitserve.lab.verdict.evidence import Checks, Evidence
from splitserve.lab.verdict.judged import at_most, effect_text


def test_an_effect_has_its_bounds() -> None:
    effect = ratios([1.0, 1.0, 1.0], [0.5, 0.51, 0.49])
    assert effect_text(effect, 0.95).startswith("0.5, [0.476, 0.525], 3 pairs")


@pytest.mark.parametrize(
    "effect",
    [differences([0.5, 0.5], [0.5, 0.5]), ratios([1.0], [0.5])],
    ids=["share", "ratio"],
)
def test_an_effect_without_bounds_says_so(effect: Paired) -> None:
    told = effect_text(effect, 0.95)
    assert "no bound (n too small)" in told
    assert "inf" not in told


def test_a_failed_arm_is_infinite_in_a_sign_that_people_read() -> None:
    told = effect_text(ratios([1.0] * 8, [math.inf] * 8), 0.95)
    assert told.startswith("∞, [∞, ∞]")


def test_an_upper_bound_that_is_none_is_no_number() -> None:
    assert at_most(0.05462, " ms", 1000, digits=4) == "at most 54.62 ms"
    assert at_most(math.inf, " s").startswith("without an upper bound")


def test_no_clause_speaks_of_inf() -> None:
    few = study(target=pairs(b=run(ttft_s=3.0, tail_itl_s=math.inf), count=2))
    for evidence in (few, study(target=few.target[:1])):
        sentences = [says for clause in decide(evidence).clauses for says in clause.evidence]
        assert not [says for says in sentences if "inf" in says]


def test_what_was_not_measured_says_what_would_measure_it() -> None:
    nothing = Evidence(rules=RULES)
    paired = study(checks=Checks(), second_start=(), handoffs=None, rollback=None)
    for evidence in (nothing, paired):
        for clause in decide(evidence).clauses:
            missing = [s for s in clause.lacking if s.startswith(("no ", "the env", "retries"))]
            assert all(": " in says for says in missing)
    lacking = [says for clause in decide(paired).clauses for says in clause.lacking]
    assert len([says for says in lacking if ": " in says]) >= 6
