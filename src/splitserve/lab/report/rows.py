"""One line per attempt at a run, for tables and for the CSV file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from splitserve.lab.measure.attainment import Slo
from splitserve.lab.measure.outcomes import measured, tally
from splitserve.lab.report import samples
from splitserve.lab.report.results import RunResult
from splitserve.lab.run.figures import throughput
from splitserve.lab.stats.quantile import inverse_cdf, smallest_sample

REFUSED = "refused"

Number = float | str | None
"""A number, REFUSED where the sample is too small for it, None where there is no sample."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """Times in seconds, infinite where failures reach a quantile; ``throughput`` in output tokens
    a second. ``lag_p99_s``: how late the client sent."""

    number: int
    attempt: int
    phase: str
    series: str
    pair: int | None
    position: int
    side: str
    arm: str
    cell: str
    shard: int
    rate_per_s: float | None
    state: str
    reason: str
    requests: int
    failed: int
    degraded: int
    never_sent: int
    good: int
    ttft_p50_s: Number
    ttft_p95_s: Number
    first_gap_p95_s: Number
    itl_p50_s: Number
    itl_p99_s: Number
    tail_itl_p50_s: Number
    tail_itl_p95_s: Number
    throughput: Number
    lag_p99_s: Number


def row_of(result: RunResult, slo: Slo) -> RunRow:
    """The line of one attempt."""
    run, listed = result.run, samples.asked(result)
    found = tally(measured(result.records))
    good = samples.attained(listed, slo)
    gaps, tails = samples.pooled_gaps(listed), samples.tails(slo)(listed)
    return RunRow(
        number=run.number,
        attempt=result.attempt,
        phase=run.phase,
        series=run.series,
        pair=run.pair,
        position=run.position,
        side=run.side,
        arm=run.arm,
        cell=run.cell.text(),
        shard=run.shard,
        rate_per_s=result.rate_per_s,
        state=result.state.value,
        reason=result.reason,
        requests=len(listed),
        failed=found.failed,
        degraded=found.degraded,
        never_sent=len(measured(result.records)) - len(listed),
        good=good.hits if good else 0,
        ttft_p50_s=_quantile(samples.ttft(listed), 0.5),
        ttft_p95_s=_quantile(samples.ttft(listed), 0.95),
        first_gap_p95_s=_quantile(samples.first_gaps(listed), 0.95),
        itl_p50_s=_quantile(gaps, 0.5),
        itl_p99_s=_quantile(gaps, 0.99),
        tail_itl_p50_s=_quantile(tails, 0.5),
        tail_itl_p95_s=_quantile(tails, 0.95),
        throughput=throughput(result.records),
        lag_p99_s=_quantile(lags(result), 0.99),
    )


def lags(result: RunResult) -> list[float]:
    """How late each request of the window was sent, in seconds; infinite for one never sent."""
    return [
        math.inf if record.lag_s is None else record.lag_s for record in measured(result.records)
    ]


def _quantile(values: Sequence[float], p: float) -> Number:
    if not values:
        return None
    return inverse_cdf(values, p) if len(values) >= smallest_sample(p) else REFUSED
