"""The clauses of the decision (evaluation.md 5.10), in order; each gives its own evidence."""

import math
from collections.abc import Callable, Mapping
from typing import Final

from splitserve.lab.stats.control import within_noise
from splitserve.lab.verdict.comparison import compare
from splitserve.lab.verdict.facts import Facts
from splitserve.lab.verdict.guards import NO_PAIR, guard_errors, guard_kv, guard_latency
from splitserve.lab.verdict.improvement import TAIL_ITL, TTFT, latencies
from splitserve.lab.verdict.judged import Judged, clause, effect_text, yes_no
from splitserve.lab.verdict.outcome import Clause, Status
from splitserve.lab.verdict.rollback import unmet
from splitserve.lab.verdict.rules import Resources, Verification

VALID: Final = "valid"
IMPROVE: Final = "improve"


def valid(facts: Facts) -> Clause:
    """Whether the study may say anything at all."""
    evidence = facts.evidence
    rules, checks = evidence.rules, evidence.checks
    measured = rules.verification is Verification.MEASURED
    parts = [
        yes_no(checks.preflight, "preflight passed", "preflight failed", "no preflight was made"),
        yes_no(
            checks.plan_unchanged,
            "the plan's hash is the one from before",
            "the plan was changed after its hash",
            "the plan's hash was not checked",
        ),
        _told(measured, f"verification class is {rules.verification.value}"),
        _told(
            len(evidence.target) >= rules.pairs,
            f"{len(evidence.target)} valid pairs of {rules.pairs} needed",
        ),
        _told(
            len(evidence.control) >= max(2, rules.aa_pairs),
            f"{len(evidence.control)} valid A/A pairs of {max(2, rules.aa_pairs)} needed",
        ),
    ]
    parts += [
        _told(floor.clean, f"A/A {name}: {floor.point:+.3g} (log or share), noise")
        if floor.clean
        else _told(False, f"A/A {name}: {floor.point:+.3g} (log or share), a difference of its own")
        for name, floor in facts.floors.items()
    ]
    return clause(VALID, parts)


def improve(facts: Facts) -> Clause:
    """Tail ITL or TTFT improves, and with it the share of requests that keep the SLO."""
    target, found = facts.target, facts.improvement
    if target is None or found is None:
        return clause(IMPROVE, [NO_PAIR])
    rules = facts.evidence.rules
    open_end = Status.NOT_SHOWN if found.possible else Status.FAILS
    texts = [
        f"{name} B/A {effect_text(effect, 1 - rules.alpha)}, "
        f"Holm p {found.tests[name].adjusted:.3g}, wanted {math.exp(least):g}"
        for name, (effect, least) in latencies(target, rules).items()
    ]
    share = f"attainment B - A {effect_text(target.attainment, 1 - rules.alpha)}"
    parts = [
        Judged(Status.HOLDS if found.improved else open_end, "; ".join(texts)),
        Judged(Status.HOLDS if found.slo_gain else open_end, share),
    ]
    if found.shown:
        met = "is" if found.meets_slo else "is not"
        parts.append(Judged(Status.HOLDS, f"B {met} shown to reach {rules.slo.attainment:.4g}"))
    return clause(IMPROVE, parts)


def reproduce(facts: Facts) -> Clause:
    """Versions, connector and network are known, stayed the same, and a second start agrees."""
    checks = facts.evidence.checks
    return clause(
        "reproduce",
        [
            yes_no(
                checks.captured,
                "versions, connector and network were captured in full",
                "versions, connector or network could not be captured in full",
                "the environment was not captured",
            ),
            yes_no(
                checks.environment_unchanged,
                "the environment stayed the same",
                "the environment changed during the study",
                "the environment was not compared",
            ),
            yes_no(
                _second_start(facts),
                "a second start lies in the noise floor",
                "a second start differs from the first",
                "no second start was measured",
            ),
        ],
    )


def rollback(facts: Facts) -> Clause:
    """One can go back to the single configuration."""
    proof = facts.evidence.rollback
    if proof is None:
        return clause("rollback", [Judged(Status.NOT_SHOWN, "no rollback was tried")])
    lacking = unmet(proof, facts.evidence.rules.alpha)
    passed = Judged(Status.HOLDS, f"single served again after {proof.return_s:g} s, as before")
    return clause("rollback", [Judged(Status.FAILS, says) for says in lacking] or [passed])


def capacity(facts: Facts) -> Clause:
    """Both arms hold the same GPUs."""
    resources = facts.evidence.rules.resources
    return clause("capacity", [_told(resources is Resources.SAME, f"resources: {resources.value}")])


CLAUSES: Final[tuple[Callable[[Facts], Clause], ...]] = (
    valid,
    improve,
    guard_latency,
    guard_kv,
    guard_errors,
    reproduce,
    rollback,
    capacity,
)
"""All must hold for ADOPT. The first that does not is the reason given."""

MEANINGS: Final[Mapping[str, str]] = {
    VALID: "the study is valid",
    IMPROVE: "the target cell improves",
    "guard_latency": "the other latency is within its limit",
    "guard_kv": "KV transfer is within its limits",
    "guard_errors": "errors are within their limits",
    "reproduce": "it can be reproduced",
    "rollback": "one can go back",
    "capacity": "both arms hold the same GPUs",
}


def _second_start(facts: Facts) -> bool | None:
    evidence = facts.evidence
    again = compare(evidence.second_start)
    if again is None:
        return None
    level = 1 - evidence.rules.alpha
    effects = latencies(again, evidence.rules)
    return all(within_noise(effects[n][0], -effects[n][1], level) for n in (TAIL_ITL, TTFT))


def _told(kept: bool, says: str) -> Judged:
    return Judged(Status.HOLDS if kept else Status.FAILS, says)
