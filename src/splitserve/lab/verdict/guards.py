"""Guards: what must not get worse. Each at one-sided alpha, uncorrected, since all must hold."""

import math

from splitserve.lab.stats.interval import mean, typical_interval
from splitserve.lab.stats.shares import clopper_pearson, pooled, share_upper
from splitserve.lab.verdict.comparison import Comparison
from splitserve.lab.verdict.evidence import Handoffs
from splitserve.lab.verdict.facts import Facts
from splitserve.lab.verdict.improvement import TAIL_ITL, TTFT, latencies
from splitserve.lab.verdict.judged import (
    Judged,
    at_most,
    clause,
    effect_text,
    within,
    yes_no,
)
from splitserve.lab.verdict.outcome import Clause, Status
from splitserve.lab.verdict.rules import Rules

NO_PAIR = Judged(
    Status.NOT_SHOWN,
    "no valid pair in the target cell: let its pairs end (splitserve lab resume)",
)
_NO_HANDOFF = (
    "no KV hand-off was measured: take a split whose gateway counts them on /metrics, as "
    "Splitserve's does"
)
_NO_RETRIES = (
    "retries were not recorded: take a split whose gateway counts them on /metrics, as "
    "Splitserve's does"
)
_NO_OTHER = "it is not known which latency improves, and so not which one has to be guarded"
_NO_LOCAL_TOKENS = (
    "what decode computed itself was not recorded: only Splitserve's own engine tells it"
)


def guard_latency(facts: Facts) -> Clause:
    """A latency that did not improve stays within its SLO, or within what the plan accepts."""
    if facts.target is None or facts.improvement is None:
        return clause("guard_latency", [NO_PAIR])
    found = facts.improvement
    # As long as none improved, one that still may is not yet the other one.
    others = {TAIL_ITL, TTFT} - found.improved if found.improved else found.ruled_out
    parts = [_latency(name, facts.target, facts.evidence.rules) for name in sorted(others)]
    if not parts and found.improved:
        parts = [Judged(Status.HOLDS, "both latencies improved")]
    unknown = [Judged(Status.NOT_SHOWN, _NO_OTHER)]
    return clause("guard_latency", parts or unknown)


def guard_kv(facts: Facts) -> Clause:
    """Hand-offs are fast enough, hardly ever fail, and are really used."""
    rules, handoffs = facts.evidence.rules, facts.evidence.handoffs
    if handoffs is None or not handoffs.p95_s or not handoffs.failed:
        return clause("guard_kv", [Judged(Status.NOT_SHOWN, _NO_HANDOFF)])
    parts = [_handoff_time(handoffs, rules), _handoff_failures(handoffs, rules), _used(handoffs)]
    return clause("guard_kv", parts)


def guard_errors(facts: Facts) -> Clause:
    """Errors are neither more than the plan allows over A nor more than it allows at all."""
    if facts.target is None:
        return clause("guard_errors", [NO_PAIR])
    rules, target = facts.evidence.rules, facts.target
    margins, level = rules.margins, 1 - rules.alpha
    more = within(target.error_lower, target.error_upper, margins.error_difference)
    upper = share_upper(target.errors_b, level)
    lower = clopper_pearson(pooled(target.errors_b), 2 * level - 1).low
    parts = [
        Judged(
            more,
            f"errors B - A at most {100 * target.error_upper:.3g} pp, "
            f"allowed {100 * margins.error_difference:.3g} pp",
        ),
        Judged(
            within(lower, upper, margins.error_share),
            f"errors of B at most {100 * upper:.3g} %, allowed {100 * margins.error_share:.3g} %",
        ),
        yes_no(
            facts.evidence.checks.retries_disclosed,
            "retries are listed by reason",
            "retries are hidden",
            _NO_RETRIES,
        ),
    ]
    return clause("guard_errors", parts)


def _latency(name: str, target: Comparison, rules: Rules) -> Judged:
    effect, _ = latencies(target, rules)[name]
    if name == TTFT:
        times, limit = target.b(lambda run: run.ttft_s), rules.slo.ttft_s
        accepted = rules.margins.accepted_ttft_ratio
    else:
        times, limit = target.b(lambda run: run.tail_itl_s), rules.slo.tail_itl_s
        accepted = rules.margins.accepted_tail_itl_ratio
    bounds = typical_interval(times, 1 - 2 * rules.alpha)
    says = f"{name} of B {at_most(bounds.high, ' s', digits=4)}"
    parts = [Judged(within(bounds.low, bounds.high, limit), says)]
    ratio = effect.ratio_interval(1 - 2 * rules.alpha)
    allowed = f"SLO {limit:g} s"
    if accepted is not None:
        parts.append(
            Judged(within(ratio.low, ratio.high, accepted), f"ratio {at_most(ratio.high, '')}")
        )
        allowed += f" or ratio {accepted:g}"
    statuses = [part.status for part in parts]
    says = f"{' and '.join(part.says for part in parts)}; allowed: {allowed}"
    # Either is enough, so the clause fails only when both fail.
    best = next((s for s in (Status.HOLDS, Status.NOT_SHOWN) if s in statuses), Status.FAILS)
    return Judged(best, f"{says} ({effect_text(effect, 1 - rules.alpha)})")


def typical(times: list[float]) -> float:
    """The geometric mean over runs, infinite with an infinite run."""
    return math.inf if math.inf in times else math.exp(mean([math.log(t) for t in times]))


def _handoff_time(handoffs: Handoffs, rules: Rules) -> Judged:
    budget, level = rules.margins.handoff_p95_s, 1 - rules.alpha
    bounds = typical_interval(handoffs.p95_s, 2 * level - 1)
    upper = at_most(bounds.high, " ms", 1000, digits=4)
    says = f"KV hand-off p95 {upper}, budget {1000 * budget:.4g} ms"
    return Judged(within(bounds.low, bounds.high, budget), says)


def _handoff_failures(handoffs: Handoffs, rules: Rules) -> Judged:
    allowed, level = rules.margins.handoff_failures, 1 - rules.alpha
    upper = share_upper(handoffs.failed, level)
    low = clopper_pearson(pooled(handoffs.failed), 2 * level - 1).low
    says = f"failed hand-offs at most {100 * upper:.3g} %, allowed {100 * allowed:.3g} %"
    return Judged(within(low, upper, allowed), says)


def _used(handoffs: Handoffs) -> Judged:
    local = handoffs.local_tokens
    used = None if local is None else local <= handoffs.block_tokens
    return yes_no(
        used,
        "decode computed no more than one block of a prompt itself",
        f"decode computed {local} prompt tokens a request itself: KV was not used",
        _NO_LOCAL_TOKENS,
    )
