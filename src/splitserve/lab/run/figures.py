"""A run's records as the figures that enter the verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.attainment import Slo, is_good
from splitserve.lab.measure.latency import first_gap, ttft_user
from splitserve.lab.measure.outcomes import counted, measured, standing
from splitserve.lab.measure.tail import TailRule, tail_itl, tail_rule
from splitserve.lab.plan.phases import Cell
from splitserve.lab.plan.study import Study
from splitserve.lab.stats.quantile import inverse_cdf
from splitserve.lab.stats.shares import Count
from splitserve.lab.verdict.evidence import RunFigures

_RULES: Final = {"p99": TailRule.Q99, "p95": TailRule.Q95, "max": TailRule.MAX}
_LENGTH_OF_WHOLE: Final = 256
"""Answers of a file's own lengths: too short for a 99th percentile of their gaps."""

FLUID_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Measures:
    """How records are read: one rule for all requests of a cell."""

    slo: Slo
    rule: TailRule
    quantile: float


def measures_of(study: Study, cell: Cell) -> Measures:
    """The plan's rules at ``cell``; auto takes the quantile that the output cap carries."""
    output = study.workload.corpus.output_tokens.get(cell.output, _LENGTH_OF_WHOLE)
    rule = _RULES.get(study.metrics.tail_itl) or tail_rule(output - 1)
    slo = Slo(
        ttft_s=study.slo.ttft_ms / 1000,
        itl_s=study.slo.itl_ms / 1000,
        rule=rule,
        fluid_share=FLUID_SHARE if study.slo.itl_rule == "fluidity" else None,
    )
    return Measures(slo, rule, study.metrics.decided_at)


def figures(records: Sequence[RequestRecord], how: Measures) -> RunFigures | None:
    """Of one run; None when it has no request that was the server's to answer, or no gap."""
    asked = counted(measured(records))
    tails = [tail for record in asked if (tail := tail_itl(record, how.rule)) is not None]
    if not asked or not tails:
        return None
    gaps = [gap for record in asked if (gap := first_gap(record)) is not None]
    return RunFigures(
        tail_itl_s=_positive(inverse_cdf(tails, how.quantile)),
        ttft_s=_positive(inverse_cdf([ttft_user(record) for record in asked], how.quantile)),
        attained=Count(sum(is_good(record, how.slo) for record in asked), len(asked)),
        errors=Count(sum(standing(record).failed for record in asked), len(asked)),
        first_gap_s=_positive(inverse_cdf(gaps, how.quantile)) if gaps else None,
        throughput=throughput(records),
    )


def throughput(records: Sequence[RequestRecord]) -> float | None:
    """Output tokens a second while measured requests were arriving: the steady window.

    Tokens of all requests count by when they came. None for a window without length or tokens.
    """
    due = [record.intended_s for record in measured(records)]
    begin, end = min(due, default=0.0), max(due, default=0.0)
    if end <= begin:
        return None
    tokens = sum(n for record in records for t_s, n in record.events if begin <= t_s < end)
    return tokens / (end - begin) if tokens else None


def _positive(seconds: float) -> float:
    """Two events of one packet are no time apart; their logarithm has to exist."""
    return max(seconds, math.ulp(1.0))
