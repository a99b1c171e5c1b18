"""One variable at a time, in the order run; ratios and layouts; and what each arm carries."""

from collections.abc import Mapping, Sequence
from typing import Final

from splitserve.lab.plan.arms import PlannedArm
from splitserve.lab.plan.study import LAYOUT, PD_RATIO
from splitserve.lab.report import estimates, plots, samples
from splitserve.lab.report.blocks import Cell, Section, Table, Text
from splitserve.lab.report.figure import Figure, number
from splitserve.lab.report.plots import Rates
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.stats.goodput import RatePoint, goodput
from splitserve.lab.stats.interval import Interval
from splitserve.lab.stats.shares import clopper_pearson

_SEPARATE: Final = (PD_RATIO, LAYOUT)
GOODPUT: Final = ("goodput", "goodput")
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
    names = [axis.name for axis in results.plan.study.axes if axis.name not in _SEPARATE]
    return Section("One-axis series, in the order run", _series(results, names))


def layouts(results: StudyResults) -> Section:
    """P:D ratio at a fixed total, TP/PP and network."""
    names = [axis.name for axis in results.plan.study.axes if axis.name in _SEPARATE]
    return Section("Ratio, TP/PP and network", _series(results, names))


def carried(results: StudyResults) -> Section:
    """The greatest rate that keeps the SLO, per arm and per GPU."""
    arms = (("A", results.plan.baseline), ("B", results.plan.split))
    points = {side: _points(results, side) for side, _ in arms}
    title, note = "Goodput per GPU", "Goodput is the greatest rate whose attainment is shown."
    if not any(points.values()):
        return Section(title, (Text("Not measured: the plan has no goodput runs, or none ended."),))
    target = results.plan.study.slo.attainment
    columns = ("arm", "goodput", "goodput per GPU", "rates measured")
    rows = tuple(_carried(arm, points[side], target) for side, arm in arms)
    return Section(title, (Table("", columns, rows, note), _plot(arms, points, target)))


def _plot(
    arms: Sequence[tuple[str, PlannedArm]],
    points: Mapping[str, list[RatePoint]],
    target: float,
) -> Rates:
    gpus = all(arm.resources.gpus for _, arm in arms)
    parts = {side: arm.resources.gpus if gpus else 1 for side, arm in arms}
    drawn = tuple(
        plots.RatesOfArm(
            f"{side}: {arm.label}", tuple(_drawn(point, parts[side]) for point in points[side])
        )
        for side, arm in arms
    )
    return Rates("Attainment over the rate", f"1/s{' per GPU' * gpus}", target, drawn)


def _drawn(point: RatePoint, parts: int) -> plots.RatePoint:
    bounds = clopper_pearson(point.good)
    share = point.good.share
    return plots.RatePoint(point.rate / parts, share, bounds.low, bounds.high, point.good.total)


def _series(results: StudyResults, axes: Sequence[str]) -> tuple[Table | Text, ...]:
    found = dict.fromkeys(
        samples.series_of(r) for r in samples.accepted(results) if r.run.phase in axes
    )
    if not found:
        return (Text("Not measured: the plan has no such series, or none of its runs ended."),)
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
    counts = [samples.attained(samples.asked(run), results.slo) for run in runs]
    return estimates.share([count for count in counts if count is not None])


def _points(results: StudyResults, side: str) -> list[RatePoint]:
    points = []
    for run in samples.of_series(results, GOODPUT, side):
        good = samples.attained(samples.asked(run), results.slo)
        if run.rate_per_s is not None and good is not None:
            points.append(RatePoint(run.rate_per_s, good))
    return points


def _carried(arm: PlannedArm, points: Sequence[RatePoint], target: float) -> tuple[Cell, ...]:
    if not points:
        return arm.label, Figure(None, ""), Figure(None, ""), "none"
    found = goodput(points, target)
    gpus = arm.resources.gpus
    whole = _bounded(found.carried, found.missed, 1, len(points))
    each: Cell = _bounded(found.carried, found.missed, gpus, len(points)) if gpus else "no GPU"
    rates = ", ".join(number(point.rate) for point in points)
    return arm.label, whole, each, f"{rates} requests/s"


def _bounded(low: float, high: float, parts: int, n: int) -> Figure:
    """``low`` is shown to be carried, ``high`` to be missed."""
    unit = "requests/s" if parts == 1 else "requests/s per GPU"
    bounds = Interval(low / parts, high / parts, 0.95)
    method = "from the rate that is shown to meet the SLO to the one that is shown to miss it"
    return Figure(low / parts, unit, n, "rates", method, bounds)
