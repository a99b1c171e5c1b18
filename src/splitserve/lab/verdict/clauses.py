"""The clauses of the decision, in order; each gives its own evidence."""

import math
from collections.abc import Callable, Mapping
from typing import Final

from splitserve.lab.stats.control import NoiseFloor, within_noise
from splitserve.lab.stats.interval import exponential
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

# What was not measured says what would measure it.
_UNTESTED: Final = "no preflight was made: splitserve lab run, or resume, makes it"
_PAIRS: Final = "let the pairs at the target cell end (splitserve lab resume)"
_NO_ROLLBACK: Final = (
    "no rollback was tried: [rollback] in the plan, with arms that the lab starts from topologies"
)


def valid(facts: Facts) -> Clause:
    """Whether the study may say anything at all."""
    evidence = facts.evidence
    rules, checks = evidence.rules, evidence.checks
    measured = rules.verification is Verification.MEASURED
    parts = [
        yes_no(checks.preflight, "preflight passed", "preflight failed", _UNTESTED),
        yes_no(
            checks.plan_unchanged,
            "the plan's hash is the one from before",
            "the plan was changed after its hash",
            "the plan's hash was not checked: report from the folder of the study",
        ),
        _told(measured, f"the study is of class {rules.verification.value}"),
        _told(
            len(evidence.target) >= rules.pairs,
            f"{len(evidence.target)} valid pairs of {rules.pairs} needed",
        ),
        _told(
            len(evidence.control) >= max(2, rules.aa_pairs),
            f"{len(evidence.control)} valid A/A pairs of {max(2, rules.aa_pairs)} needed",
        ),
    ]
    parts += [_own(name, floor) for name, floor in facts.floors.items()]
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
        f"Holm p {found.tests[name].adjusted:.3g}, wanted at most {math.exp(least):g}"
        for name, (effect, least) in latencies(target, rules).items()
    ]
    share = f"attainment B - A {effect_text(target.attainment, 1 - rules.alpha)}"
    parts = [
        Judged(Status.HOLDS if found.improved else open_end, "; ".join(texts)),
        Judged(Status.HOLDS if found.slo_gain else open_end, share),
    ]
    if found.shown:
        met = "is" if found.meets_slo else "is not"
        wanted = f"{100 * rules.slo.attainment:.4g} %"
        parts.append(Judged(Status.HOLDS, f"attainment of B {met} shown to reach {wanted}"))
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
                "versions, connector or network could not be captured in full: both arms have to "
                "answer /version, and the plan has to name the split's connector",
                f"the environment was not captured: {_PAIRS}",
            ),
            yes_no(
                checks.environment_unchanged,
                "the environment stayed the same",
                "the environment changed during the study",
                f"the environment was not compared: {_PAIRS}",
            ),
            yes_no(
                _second_start(facts),
                "a second start lies in the noise floor",
                "a second start differs from the first",
                'no second start was measured: state.cache_reset = "restart" starts arms anew',
            ),
        ],
    )


def rollback(facts: Facts) -> Clause:
    """One can go back to the single configuration."""
    proof = facts.evidence.rollback
    if proof is None:
        return clause("rollback", [Judged(Status.NOT_SHOWN, _NO_ROLLBACK)])
    lacking = unmet(proof, facts.evidence.rules.alpha)
    passed = Judged(Status.HOLDS, f"single served again after {proof.return_s:.3g} s, as before")
    return clause("rollback", lacking or [passed])


def capacity(facts: Facts) -> Clause:
    """Both arms hold the same GPUs."""
    resources = facts.evidence.rules.resources
    if resources is Resources.SAME:
        return clause("capacity", [_told(True, "both arms hold the same resources")])
    return clause("capacity", [_told(False, "the arms hold different resources: added capacity")])


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
    control = compare(evidence.control)
    same = {} if control is None else latencies(control, evidence.rules)
    return all(
        within_noise(effects[n][0], -effects[n][1], same[n][0] if n in same else None, level)
        for n in (TAIL_ITL, TTFT)
    )


def _own(name: str, floor: NoiseFloor) -> Judged:
    """What A differs from itself by: a ratio for a time, percentage points for a share."""
    is_time = name in (TAIL_ITL, TTFT)
    by = f"ratio {exponential(floor.point):.3g}" if is_time else f"{100 * floor.point:+.3g} pp"
    if floor.clean:
        return _told(True, f"A against itself, {name}: {by}, which is noise")
    return _told(False, f"A against itself, {name}: {by}, a difference that should not be there")


def _told(kept: bool, says: str) -> Judged:
    return Judged(Status.HOLDS if kept else Status.FAILS, says)
