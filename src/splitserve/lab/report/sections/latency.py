"""What each arm did at the target cell; throughput apart."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from splitserve.lab.measure.tail import tail_itl
from splitserve.lab.report import estimates, samples
from splitserve.lab.report.blocks import Block, Cell, Section, Table, Text
from splitserve.lab.report.figure import NOT_MEASURED, Figure
from splitserve.lab.report.plots import Curve, Ecdf, Scatter
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.samples import Sampler
from splitserve.lab.report.sections.arms import TARGET, at_target
from splitserve.lab.report.sections.moved import transfers
from splitserve.lab.report.sections.words import TAILS
from splitserve.lab.run.figures import throughput
from splitserve.lab.verdict.rules import Resources

MS: Final = 1000.0
CUSTOMARY: Final = (0.5, 0.95, 0.99)
"""Shown besides the quantiles that the plan declares."""

NO_USAGE: Final = (
    "No plot of KV and GPU use over time: servers were asked before and after each run, not "
    "within. Scrape their /metrics, and the GPUs' exporter, beside the study to see it."
)


def results_table(results: StudyResults) -> Section:
    """Quantities down, arms across; then the distributions."""
    arms = at_target(results)
    columns = ("quantity", *(name for name, _ in arms))
    rows: list[tuple[Cell, ...]] = [
        (name, *(_quantile(runs, sampler, p) for _, runs in arms))
        for name, sampler, p in _quantities(results)
    ]
    rows += _handoffs(results, len(arms))
    rows.append(("failed", *(_errors(runs) for _, runs in arms)))
    rows.append(("attainment of the SLO", *(_attained(runs, results) for _, runs in arms)))
    rows.append(("retries by the client", *(_retries(results) for _ in arms)))
    rows.append(("retries by the proxy", *(NOT_MEASURED for _ in arms)))
    speed: tuple[Cell, ...] = ("output tokens per second", *(_throughput(runs) for _, runs in arms))
    note = "Failed requests are infinite in every quantile. Each run is one observation."
    blocks: list[Block] = [
        Table("Latency and errors at the target cell", columns, tuple(rows), note),
        Table("How requests ended", ("outcome", *columns[1:]), _outcomes(arms)),
        Table("Throughput, which decides nothing", columns, (speed,)),
    ]
    if results.evidence.rules.resources is Resources.ADDED:
        blocks.insert(0, Text("Added capacity: the arms hold different GPUs.", strong=True))
    drawn = (*_plots(results, arms), transfers(results), Text(NO_USAGE))
    return Section("Results at the target cell", (*blocks, *drawn))


def _quantities(results: StudyResults) -> list[tuple[str, Sampler, float]]:
    tails = samples.tails(results.slo)
    declared = results.plan.study.metrics
    ps = sorted({*CUSTOMARY, *declared.quantiles, declared.decided_at})
    wanted: list[tuple[str, Sampler, Sequence[float]]] = [
        ("TTFT, due to first token", samples.ttft, ps),
        ("TTFT, sent to first token", samples.ttft_sent, (0.95,)),
        ("first gap (token 1 to 2)", samples.first_gaps, (0.5, 0.95)),
        ("ITL, gaps of all requests", samples.pooled_gaps, (0.5, 0.99)),
        (f"tail ITL ({TAILS[results.slo.rule]})", tails, ps),
    ]
    return [(f"{name}, p{100 * p:g}", sampler, p) for name, sampler, asked in wanted for p in asked]


def _quantile(runs: Sequence[RunResult], sampler: Sampler, p: float) -> Figure:
    return estimates.quantile_of_runs([sampler(samples.asked(r)) for r in runs], p, "ms", MS)


def _handoffs(results: StudyResults, arms: int) -> list[tuple[Cell, ...]]:
    found = results.evidence.handoffs
    p95 = estimates.typical_run(found.p95_s if found else (), "ms", MS)
    failed = estimates.share(found.failed if found else (), "hand-offs")
    none = ("no hand-off",) * (arms - 1)
    return [("KV hand-off, p95", *none, p95), ("KV hand-offs failed or expired", *none, failed)]


def _errors(runs: Sequence[RunResult]) -> Figure:
    return estimates.share([samples.errors(samples.asked(run)) for run in runs])


def _attained(runs: Sequence[RunResult], results: StudyResults) -> Figure:
    return estimates.share([samples.attained(samples.asked(run), results.slo) for run in runs])


def _retries(results: StudyResults) -> str:
    allowed = results.plan.study.routing.client_retries
    return "none, by the plan" if not allowed else f"up to {allowed} a request"


def _throughput(runs: Sequence[RunResult]) -> Figure:
    speeds = [throughput(run.records) for run in runs]
    return estimates.average([speed for speed in speeds if speed is not None], "tokens/s")


def _outcomes(arms: Sequence[tuple[str, list[RunResult]]]) -> tuple[tuple[Cell, ...], ...]:
    counted = [
        Counter(record.outcome.value for run in runs for record in samples.asked(run))
        for _, runs in arms
    ]
    names = dict.fromkeys(name for counts in counted for name in sorted(counts))
    return tuple((name, *(f"{counts[name]} requests" for counts in counted)) for name in names)


def _plots(
    results: StudyResults, arms: Sequence[tuple[str, list[RunResult]]]
) -> tuple[Ecdf | Scatter, ...]:
    times = tuple(Curve(name, tuple(_all(runs, samples.ttft))) for name, runs in arms)
    tails = samples.tails(results.slo)
    answers = tuple(Curve(name, tuple(_all(runs, tails))) for name, runs in arms)
    limits = (results.slo.ttft_s, results.slo.itl_s)
    ttft_limit, tail_limit = (None if limit is None else MS * limit for limit in limits)
    return (
        Ecdf("TTFT of all requests, failures as a plateau", "TTFT", "ms", times, ttft_limit),
        Ecdf("Tail ITL per request", "tail ITL", "ms", answers, tail_limit),
        Scatter("Tail ITL of the same request, A against B", "tail ITL", "ms", _same(results)),
    )


def _all(runs: Sequence[RunResult], sampler: Sampler) -> list[float]:
    return [MS * value for run in runs for value in sampler(samples.asked(run))]


def _same(results: StudyResults) -> tuple[tuple[float, float], ...]:
    """Tail ITL in A and in B of each request that has one in both."""
    rule = results.slo.rule
    tails = [
        (tail_itl(left, rule), tail_itl(right, rule))
        for a, b in samples.pairs_of(results, TARGET)
        for left, right in samples.same_requests(a, b)
    ]
    return tuple((MS * a, MS * b) for a, b in tails if a is not None and b is not None)
