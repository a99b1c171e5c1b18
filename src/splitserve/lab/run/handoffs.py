"""What a gateway of ours told of its hand-offs during a run: its metrics at both ends, and what it
said with each answer."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import ttft_user
from splitserve.lab.measure.outcomes import measured, standing
from splitserve.lab.measure.parts import handoff_s
from splitserve.lab.stats.quantile import inverse_cdf
from splitserve.lab.stats.shares import Count

Metrics = Mapping[str, float]

_BUCKETS: Final = 'splitserve_handoff_exposed_seconds_bucket{le="'
_FALLBACKS: Final = "splitserve_fallback_total{"
_PLACED: Final = "splitserve_placements_total{"
_PREEMPTED: Final = "splitserve_preemptions_total{"
_WHOLE: Final = 'way="whole"'
P95: Final = 0.95


@dataclass(frozen=True, slots=True)
class RunHandoffs:
    """Quantiles are over measured requests where their answers told, from prefill's end to where
    decode had the KV; else ``p95_s`` is the upper bound of the bucket of the 95th percentile of
    what the prefill workers saw of it. Infinite where failed ones reach them. ``share_of_ttft``:
    the median request's. ``whole``: requests whose prompt the decode worker computed itself.
    ``reasons`` are failures by rung and reason. ``preemptions``: of all workers."""

    done: int
    p95_s: float
    failed: Count
    whole: Count
    reasons: dict[str, int]
    preemptions: int
    p50_s: float | None = None
    share_of_ttft: float | None = None


def run_handoffs(
    before: Metrics, after: Metrics, records: Iterable[RequestRecord] = ()
) -> RunHandoffs | None:
    """None where nothing was counted: another kind of server, or no request handed on."""
    counts = _since(before, after)
    bounds = sorted(
        (float(name.removeprefix(_BUCKETS).rstrip('"}')), count)
        for name, count in counts.items()
        if name.startswith(_BUCKETS)
    )
    done = round(bounds[-1][1]) if bounds else 0
    reasons = {
        name.removeprefix(_FALLBACKS).rstrip("}"): round(count)
        for name, count in counts.items()
        if name.startswith(_FALLBACKS) and count > 0
    }
    failed = sum(reasons.values())
    placed = _sum(counts, _PLACED)
    if done + failed == 0 or placed == 0:
        return None
    told = [
        (took_s, took_s / ttft_user(record))
        for record in measured(records)
        if standing(record).served and (took_s := handoff_s(record)) is not None
    ]
    each = [took_s for took_s, _ in told] + [math.inf] * failed
    return RunHandoffs(
        done=done,
        p95_s=inverse_cdf(each, P95) if told else _bound(bounds, done + failed),
        failed=Count(failed, done + failed),
        whole=Count(round(_sum(counts, _PLACED, _WHOLE)), round(placed)),
        reasons=reasons,
        preemptions=round(_sum(counts, _PREEMPTED)),
        p50_s=inverse_cdf(each, 0.5) if told else None,
        share_of_ttft=median(share for _, share in told) if told else None,
    )


def _since(before: Metrics, after: Metrics) -> dict[str, float]:
    return {name: count - before.get(name, 0.0) for name, count in after.items()}


def _sum(counts: Metrics, prefix: str, label: str = "") -> float:
    return sum(n for name, n in counts.items() if name.startswith(prefix) and label in name)


def _bound(bounds: list[tuple[float, float]], total: int) -> float:
    """Failures count as later than any other."""
    wanted = math.ceil(P95 * total)
    return next((le for le, reached in bounds if reached >= wanted), math.inf)
