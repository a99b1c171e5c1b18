"""Whatever a study gives, the verdict keeps its promises."""

import math
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from made_study import RULES, proof, run, study

from splitserve.lab.stats.shares import Count
from splitserve.lab.verdict.decide import decide
from splitserve.lab.verdict.evidence import Checks, Evidence, Handoffs, Pair, RunFigures, Signals
from splitserve.lab.verdict.outcome import Consequence, Outcome, Status
from splitserve.lab.verdict.rules import Profile, Question, Resources, Verification

FACT = st.sampled_from([True, True, True, False, None])


def times(typical: float) -> st.SearchStrategy[float]:
    near = st.floats(0.9 * typical, 1.1 * typical)
    return st.one_of(near, near, near, st.floats(1e-4, 100.0), st.just(math.inf))


def counts(typical: int) -> st.SearchStrategy[Count]:
    hits = st.one_of(st.just(typical), st.integers(0, 1000))
    return hits.map(lambda n: Count(n, 1000))


def runs(tail_itl_s: float, good: int) -> st.SearchStrategy[RunFigures]:
    return st.builds(
        run,
        tail_itl_s=times(tail_itl_s),
        ttft_s=times(1.2),
        attained=counts(good),
        errors=counts(0),
    )


def series(most: int, tail_itl_s: float, good: int) -> st.SearchStrategy[tuple[Pair, ...]]:
    pair = st.builds(Pair, runs(0.08, 700), runs(tail_itl_s, good), st.floats(0, 30))
    return st.lists(pair, max_size=most).map(tuple)


STUDIES: st.SearchStrategy[Evidence] = st.builds(
    study,
    rules=st.builds(
        lambda **changes: replace(RULES, **changes),
        pairs=st.integers(1, 4),
        profile=st.sampled_from(Profile),
        question=st.sampled_from(Question),
        verification=st.sampled_from([Verification.MEASURED] * 4 + list(Verification)),
        resources=st.sampled_from(Resources),
    ),
    checks=st.builds(Checks, st.just(True), FACT, FACT, FACT, FACT),
    target=series(8, 0.04, 985),
    control=series(3, 0.08, 700),
    chunked=series(3, 0.05, 900),
    chunked_split=series(3, 0.04, 985),
    handoffs=st.one_of(
        st.none(),
        st.builds(
            Handoffs,
            st.lists(times(0.05), max_size=4).map(tuple),
            st.lists(counts(0), max_size=4).map(tuple),
            local_tokens=st.sampled_from([0.5, None, 900.0]),
        ),
    ),
    signals=st.builds(Signals, cached_a=st.just(0.0), cached_b=st.sampled_from([0.0, None, 0.5])),
    rollback=st.sampled_from([proof(), proof(), None, proof(processes_left=1)]),
)


@settings(max_examples=60)
@given(STUDIES)
def test_adopt_means_that_everything_holds_and_nothing_speaks_against_it(evidence: Any) -> None:
    verdict = decide(evidence)
    against = {Consequence.NOTE} ^ set(Consequence)
    holds = all(c.status is Status.HOLDS for c in verdict.clauses)
    spoken = any(r.triggered and r.consequence in against for r in verdict.readings)
    rules = evidence.rules
    allowed = (
        rules.profile is Profile.FULL
        and rules.verification is Verification.MEASURED
        and rules.resources is Resources.SAME
        and rules.question is not Question.THROUGHPUT
    )
    assert (verdict.outcome is Outcome.ADOPT) == (holds and not spoken and allowed)


@settings(max_examples=60)
@given(STUDIES)
def test_every_verdict_has_a_reason_and_evidence_without_nan(evidence: Any) -> None:
    verdict = decide(evidence)
    said = [verdict.reason, *(text for c in verdict.clauses for text in c.evidence)]
    assert all(said)
    assert not any("nan" in text for text in said)
    for clause in verdict.clauses:
        assert bool(clause.lacking) == (clause.status is not Status.HOLDS)
