"""The decision: clauses and readings in, a verdict out.

In this order; the first that applies is the verdict:

    1. a clause of validity does not hold, or a reading invalidates       INVALID
    2. chunked prefill meets the SLO, or does as much as the split        TRY_CHUNKED
    3. a reading says that single suffices                                KEEP_SINGLE
    4. a clause other than improvement fails for certain                  KEEP_SINGLE
    5. improvement is neither shown nor ruled out                         INCONCLUSIVE, n more pairs
    6. a reading leaves it undecided                                      INCONCLUSIVE
    7. a clause does not hold, or a reading blocks                        KEEP_SINGLE
    8. all hold                                                           ADOPT, as a candidate

2 stands before 8: where the cheaper remedy is shown to suffice, the dearer is not advised although
it helps. 4 stands before 5: no number of pairs would mend it. 6 stands before 7: an effect that
drifts, or that was looked for on short prompts only, is not shown to be absent. Then the caps: a
smoke study recommends no change, and a study asked about throughput alone claims no capacity.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from splitserve.lab.verdict.clauses import CLAUSES, IMPROVE, MEANINGS, VALID
from splitserve.lab.verdict.evidence import Evidence
from splitserve.lab.verdict.facts import Facts, gather
from splitserve.lab.verdict.outcome import Clause, Consequence, Heard, Outcome, Status, Verdict
from splitserve.lab.verdict.readings import READINGS
from splitserve.lab.verdict.rules import Profile, Question, Rules

CHANGES: Final = frozenset({Outcome.ADOPT, Outcome.TRY_CHUNKED})
"""Verdicts that recommend to change something."""


def decide(evidence: Evidence) -> Verdict:
    """The verdict of a study, with the evidence of every clause and every reading."""
    facts = gather(evidence)
    clauses = tuple(rule(facts) for rule in CLAUSES)
    readings = tuple(reading.read(facts) for reading in READINGS)
    steps = (step(facts, clauses, readings) for step in STEPS)
    found = next((s for s in steps if s is not None), _adopted(facts))
    return _capped(replace(found, clauses=clauses, readings=readings), evidence.rules)


Step = Callable[[Facts, tuple[Clause, ...], tuple[Heard, ...]], Verdict | None]


def _invalid(_: Facts, clauses: tuple[Clause, ...], readings: tuple[Heard, ...]) -> Verdict | None:
    valid = next(c for c in clauses if c.name == VALID)
    if valid.status is not Status.HOLDS:
        return _verdict(Outcome.INVALID, _lack(valid))
    return _by(Consequence.INVALIDATES, Outcome.INVALID, readings)


def _chunked(_: Facts, __: tuple[Clause, ...], readings: tuple[Heard, ...]) -> Verdict | None:
    return _by(Consequence.CHUNKED, Outcome.TRY_CHUNKED, readings)


def _kept(_: Facts, __: tuple[Clause, ...], readings: tuple[Heard, ...]) -> Verdict | None:
    return _by(Consequence.KEEPS, Outcome.KEEP_SINGLE, readings)


def _failed(_: Facts, clauses: tuple[Clause, ...], __: tuple[Heard, ...]) -> Verdict | None:
    failing = [c for c in clauses if c.status is Status.FAILS]
    beside = any(c.name != IMPROVE for c in failing)
    return _verdict(Outcome.KEEP_SINGLE, _lack(failing[0])) if beside else None


def _open(facts: Facts, clauses: tuple[Clause, ...], _: tuple[Heard, ...]) -> Verdict | None:
    improve = next(c for c in clauses if c.name == IMPROVE)
    if facts.improvement is None or improve.status is not Status.NOT_SHOWN:
        return None
    more = facts.improvement.more_pairs
    needs = "more pairs are needed" if more is None else f"about {more} more pairs are needed"
    return replace(_verdict(Outcome.INCONCLUSIVE, f"{_lack(improve)}; {needs}"), more_pairs=more)


def _undecided(_: Facts, __: tuple[Clause, ...], readings: tuple[Heard, ...]) -> Verdict | None:
    return _by(Consequence.UNDECIDED, Outcome.INCONCLUSIVE, readings)


def _missing(_: Facts, clauses: tuple[Clause, ...], readings: tuple[Heard, ...]) -> Verdict | None:
    lacking = [c for c in clauses if c.status is not Status.HOLDS]
    if lacking:
        return _verdict(Outcome.KEEP_SINGLE, _lack(lacking[0]))
    return _by(Consequence.BLOCKS, Outcome.KEEP_SINGLE, readings)


STEPS: Final[tuple[Step, ...]] = (
    _invalid,
    _chunked,
    _kept,
    _failed,
    _open,
    _undecided,
    _missing,
)
"""Steps 1 to 7; what passes all of them is adopted."""


def _adopted(facts: Facts) -> Verdict:
    weak = facts.improvement is None or not facts.improvement.meets_slo
    short = ", though it is not shown to meet the SLO" if weak else ""
    says = f"All clauses hold: the split is a candidate{short}. The feature is experimental."
    return replace(_verdict(Outcome.ADOPT, says), weak=weak)


def _capped(verdict: Verdict, rules: Rules) -> Verdict:
    if rules.profile is Profile.SMOKE and verdict.outcome in CHANGES:
        says = f"A smoke study recommends no change; in full it might have: {verdict.reason}"
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=says)
    if rules.question is Question.THROUGHPUT and verdict.outcome is Outcome.ADOPT:
        says = (
            "No capacity claim: the split is not claimed to raise throughput. Compare queueing, "
            "batching, model and hardware first."
        )
        return replace(verdict, outcome=Outcome.KEEP_SINGLE, reason=says, weak=False)
    return verdict


def _by(consequence: Consequence, outcome: Outcome, readings: tuple[Heard, ...]) -> Verdict | None:
    heard = [r for r in readings if r.triggered and r.consequence is consequence]
    if not heard:
        return None
    return _verdict(outcome, f"{heard[0].name}: {heard[0].says} {heard[0].action}")


def _lack(clause: Clause) -> str:
    negation = "Does not hold" if clause.status is Status.FAILS else "Not shown"
    return f"{negation}: {MEANINGS[clause.name]} ({'; '.join(clause.lacking)})"


def _verdict(outcome: Outcome, reason: str) -> Verdict:
    return Verdict(outcome, reason, clauses=(), readings=())
