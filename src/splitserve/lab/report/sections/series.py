"""One variable at a time, in the order run; then ratios and layouts."""

from collections.abc import Sequence
from typing import Final

from splitserve.lab.plan.study import CONCURRENCY, LAYOUT, OUTPUT_CAP, PD_RATIO, PROMPT_LEN
from splitserve.lab.report import estimates, samples
from splitserve.lab.report.blocks import Cell, Section, Table, Text
from splitserve.lab.report.figure import Figure
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.sections.cells import attainment_by_cell

_WORKLOAD: Final = (PROMPT_LEN, OUTPUT_CAP, CONCURRENCY)
_DEPLOYMENT: Final = (PD_RATIO, LAYOUT)
_COLUMNS: Final = (
    "series",
    "TTFT, B/A",
    "tail ITL, B/A",
    "attainment, A",
    "attainment, B",
    "valid pairs",
)


def axes(results: StudyResults) -> Section:
    """Prompt length, output cap, concurrency."""
    blocks = (*_series(results, _WORKLOAD), attainment_by_cell(results))
    return Section("One-axis series, in the order run", blocks)


def layouts(results: StudyResults) -> Section:
    """P:D ratio at a fixed total, TP/PP and network."""
    return Section("Ratio, TP/PP and network", _series(results, _DEPLOYMENT))


def _series(results: StudyResults, axes: Sequence[str]) -> tuple[Table | Text, ...]:
    found = dict.fromkeys(
        samples.series_of(r) for r in samples.accepted(results) if r.run.phase in axes
    )
    if not found:
        return (
            Text(
                "Not measured: the plan has no such series, or none of its runs ended. To measure "
                f"it: an entry [[axes]] with name {' or '.join(axes)}."
            ),
        )
    rows = tuple(_row(results, series) for series in found)
    note = "Descriptive: few pairs, one variable changed, everything else as in the target cell."
    return (Table("", _COLUMNS, rows, note),)


def _row(results: StudyResults, series: samples.Series) -> tuple[Cell, ...]:
    p, level = results.plan.study.metrics.decided_at, 1 - results.evidence.rules.alpha
    tails = samples.tails(results.slo)
    return (
        series[1],
        estimates.effect(samples.paired_effect(results, series, samples.ttft, p), level),
        estimates.effect(samples.paired_effect(results, series, tails, p), level),
        _attained(samples.of_series(results, series, "A"), results),
        _attained(samples.of_series(results, series, "B"), results),
        f"{len(samples.pairs_of(results, series))} pairs",
    )


def _attained(runs: Sequence[RunResult], results: StudyResults) -> Figure:
    return estimates.share([samples.attained(samples.asked(run), results.slo) for run in runs])
