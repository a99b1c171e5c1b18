"""When a reading is triggered: one small rule on arrows and counters each.

True or False where what a rule needs was measured, None where it was not.
"""

import math
from collections.abc import Sequence

from splitserve.lab.stats.interval import typical_upper
from splitserve.lab.stats.shares import Count, pooled, share_lower, surely_more
from splitserve.lab.verdict.comparison import Direction
from splitserve.lab.verdict.facts import Facts
from splitserve.lab.verdict.guards import typical
from splitserve.lab.verdict.rules import Question, Resources

DOWN, UP, SAME, UNCLEAR = Direction.DOWN, Direction.UP, Direction.SAME, Direction.UNCLEAR

CACHE_GAP = 0.01
EVENT_GAP = 0.05
BUSY = 0.9
FRONTEND_SHARE = 0.3
RECOMPUTED = 0.5
RATIO_GAP = 2.0
SLACK = 2.0
KV_FULL = 0.95
"""Where a reading begins: choices of ours."""


def price_in_ttft(facts: Facts) -> bool | None:
    """R1."""
    if facts.arrows is None:
        return None
    return facts.arrows.tail_itl is DOWN and facts.arrows.ttft is UP


def bought_with_errors(facts: Facts) -> bool | None:
    """R2: TTFT is down, and more errors in B cannot be chance."""
    if facts.arrows is None or facts.target is None:
        return None
    return facts.arrows.ttft is DOWN and facts.target.error_lower > 0


def same_throughput(facts: Facts) -> bool | None:
    """R3."""
    if facts.arrows is None or facts.arrows.throughput is None:
        return None
    return facts.arrows.throughput is SAME and facts.arrows.tail_itl is DOWN


def only_short_prompts(facts: Facts) -> bool | None:
    """R4: no difference on short prompts, and the hard cell was not run."""
    if facts.short is None or facts.arrows is None:
        return None
    gained = DOWN in (facts.arrows.tail_itl, facts.arrows.ttft)
    return facts.short.all_same and facts.hard is None and not gained


def no_benefit(facts: Facts) -> bool | None:
    """R5."""
    return None if facts.hard is None else facts.hard.all_same


def chunks_suffice(facts: Facts) -> bool | None:
    """R6: chunked prefill is shown to meet the SLO, which single is not; or both remedies lower
    tail ITL, and are shown to be equal in it."""
    if facts.arrows is None or facts.target is None or facts.chunked is None:
        return None
    both = facts.arrows.tail_itl is DOWN and facts.chunked.tail_itl is DOWN
    equal = facts.chunked_split is not None and facts.chunked_split.tail_itl is SAME
    row = [pair.b.attained for pair in facts.evidence.chunked]
    single = [pair.a.attained for pair in facts.target.pairs]
    return (both and equal) or (_meets(row, facts) and not _meets(single, facts))


def ttft_binds(facts: Facts) -> bool | None:
    """R7: TTFT is what is asked for, or what A misses alone; and it is up or unclear."""
    if facts.arrows is None or facts.target is None:
        return None
    rules = facts.evidence.rules
    misses = typical(facts.target.a(lambda run: run.ttft_s)) > rules.slo.ttft_s
    keeps = typical(facts.target.a(lambda run: run.tail_itl_s)) <= rules.slo.tail_itl_s
    binding = rules.question is Question.TTFT or (misses and keeps)
    return binding and facts.arrows.ttft in (UP, UNCLEAR)


def slow_handoff(facts: Facts) -> bool | None:
    """R8: over budget, or too large a part of TTFT."""
    handoffs, margins = facts.evidence.handoffs, facts.evidence.rules.margins
    if handoffs is None or not handoffs.p95_s:
        return None
    share = handoffs.share_of_ttft
    slow = typical(list(handoffs.p95_s)) > margins.handoff_p95_s
    return slow or (share is not None and share > margins.handoff_share_of_ttft)


def already_met(facts: Facts) -> bool | None:
    """R9: A keeps its SLO, and half of each limit would do."""
    if facts.target is None:
        return None
    rules, target = facts.evidence.rules, facts.target
    level = 1 - rules.alpha
    ttft = typical_upper(target.a(lambda run: run.ttft_s), level)
    tail = typical_upper(target.a(lambda run: run.tail_itl_s), level)
    attained = pooled([p.a.attained for p in target.pairs]).share
    slack = SLACK * ttft <= rules.slo.ttft_s and SLACK * tail <= rules.slo.tail_itl_s
    return slack and attained >= rules.slo.attainment


def turns_recomputed(facts: Facts) -> bool | None:
    """R10."""
    return _above(facts.evidence.signals.recomputed_share, RECOMPUTED)


def frontend_busy(facts: Facts) -> bool | None:
    """R11: CPU of the front end is used up, or text work is a large part of TTFT."""
    signals = facts.evidence.signals
    found = [_above(signals.frontend_cpu, BUSY), _above(signals.frontend_share, FRONTEND_SHARE)]
    known = [f for f in found if f is not None]
    return any(known) if known else None


def lopsided(facts: Facts) -> bool | None:
    """R12: one pool is more than twice as busy as the other."""
    one, other = facts.evidence.signals.prefill_busy, facts.evidence.signals.decode_busy
    if one is None or other is None:
        return None
    return max(one, other) > RATIO_GAP * min(one, other)


def decode_full(facts: Facts) -> bool | None:
    """R13."""
    signals = facts.evidence.signals
    found = [_above(signals.decode_preemptions, 0), _above(signals.decode_kv_usage, KV_FULL)]
    known = [f for f in found if f is not None]
    return any(known) if known else None


def hidden_in_first_gap(facts: Facts) -> bool | None:
    """R14."""
    if facts.arrows is None or facts.arrows.first_gap is None:
        return None
    return facts.arrows.first_gap is UP and facts.arrows.ttft is SAME


def events_differ(facts: Facts) -> bool | None:
    """R15: tokens per event differ, and tail ITL was not taken on the coarser events."""
    signals = facts.evidence.signals
    a, b = signals.tokens_per_event_a, signals.tokens_per_event_b
    if a is None or b is None:
        return None
    return not signals.rebinned and abs(math.log(b / a)) > math.log1p(EVENT_GAP)


def cache_differs(facts: Facts) -> bool | None:
    """R16."""
    a, b = facts.evidence.signals.cached_a, facts.evidence.signals.cached_b
    return None if a is None or b is None else abs(b - a) > CACHE_GAP


def closed_loop_only(facts: Facts) -> bool | None:
    """R17."""
    return facts.closed_loop_only


def drifting(facts: Facts) -> bool | None:
    """R18: the effect changes over the run order or with the deployment's start."""
    started = facts.evidence.signals.start_matters
    if not facts.drifts and started is None:
        return None
    return bool(started) or any(d.flagged for d in facts.drifts.values())


def kv_unused(facts: Facts) -> bool | None:
    """R19."""
    handoffs = facts.evidence.handoffs
    if handoffs is None or handoffs.local_tokens is None:
        return None
    return handoffs.local_tokens > handoffs.block_tokens


def more_gpus(facts: Facts) -> bool | None:
    """R20."""
    return facts.evidence.rules.resources is Resources.ADDED


def proxy_costs(facts: Facts) -> bool | None:
    """R21: TTFT is up, and behind a mere proxy it is up as much."""
    if facts.arrows is None or facts.passthrough_split is None:
        return None
    return facts.arrows.ttft is UP and facts.passthrough_split.ttft is SAME


def answers_differ(facts: Facts) -> bool | None:
    """R22: given one at a time, or under load beyond what the single arm does by itself."""
    signals, margins = facts.evidence.signals, facts.evidence.rules.margins
    alone, loaded = signals.outputs_differ, signals.outputs_differ_under_load
    if alone is None and loaded is None:
        return None
    if alone is not None and alone.share > margins.outputs_differ:
        return True
    return loaded is not None and surely_more(
        loaded, signals.outputs_differ_control, margins.outputs_differ_under_load
    )


def _meets(attained: Sequence[Count], facts: Facts) -> bool:
    """Whether the SLO is shown to be kept by the share of requests that the plan wants."""
    rules = facts.evidence.rules
    return share_lower(attained, 1 - rules.alpha) >= rules.slo.attainment


def _above(value: float | None, limit: float) -> bool | None:
    return None if value is None else value > limit
