"""The highest rate at which each arm still keeps the SLO, in all and per GPU or core."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.lab.plan.arms import PlannedArm
from splitserve.lab.plan.phases import GOODPUT
from splitserve.lab.report import plots, samples
from splitserve.lab.report.blocks import Cell, Section, Table, Text
from splitserve.lab.report.figure import Figure, number
from splitserve.lab.report.plots import Rates
from splitserve.lab.report.results import StudyResults
from splitserve.lab.stats.goodput import Goodput, RatePoint, smoothed
from splitserve.lab.stats.goodput import goodput as found_in
from splitserve.lab.stats.interval import Interval
from splitserve.lab.stats.shares import Count, clopper_pearson, pooled

TITLE: Final = "Goodput per GPU"
SEARCH: Final = (GOODPUT, GOODPUT)
DECIDES: Final = 0.90
"""Two-sided, of the bounds that decide: one-sided each is at 95 %."""

_COLUMNS: Final = (
    "arm",
    "highest rate met",
    "of each",
    "not shown to be met",
    "shown to be missed",
)
_NOTE: Final = (
    "A rate is met when the lower bound of attainment, of all intended requests, reaches the "
    "target (one-sided 95 %, exact binomial); it is missed when the upper bound does not. Between "
    "the two nothing is shown, and the interval is from the highest rate met to the next one "
    "tried. Requests of a run are taken as independent, and each rate is one run: this describes, "
    "and no verdict rests on it."
)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a rate is divided by: ``count`` of ``name``, 0 where nobody says."""

    name: str
    count: int


def goodput(results: StudyResults) -> Section:
    """What the search found, the attainment at every rate that it tried, and their picture."""
    arms = (("A", results.plan.baseline), ("B", results.plan.split))
    points = {side: _points(results, side) for side, _ in arms}
    if not any(points.values()):
        says = (
            "Not measured: the plan has no search, or none of its steps counts. To make one: "
            "[further] goodput_runs in the plan."
        )
        return Section(TITLE, (Text(says),))
    target = results.plan.study.slo.attainment
    parts = {side: _parts(results, side, arm) for side, arm in arms}
    found = tuple(_found(arm, points[side], parts[side], target) for side, arm in arms)
    tried = tuple(row for side, arm in arms for row in _tried(arm, points[side], target))
    columns = ("arm", "rate", "kept the SLO", "made to never rise", "so it is")
    return Section(
        TITLE,
        (
            Text(_horizon(results)),
            Table("", _COLUMNS, found, _NOTE),
            Table("Attainment at every rate tried", columns, tried),
            _plot(arms, points, parts, target),
        ),
    )


def _horizon(results: StudyResults) -> str:
    """A search cannot see an overload that takes longer to show than its steps last."""
    study = results.plan.study
    return (
        f"Each step is {study.workload.corpus.requests} requests after at least "
        f"{number(study.metrics.warmup_min_s)} s of warm-up at the same rate: a queue that grows "
        "so slowly that it misses the SLO only later is not seen."
    )


def _points(results: StudyResults, side: str) -> list[RatePoint]:
    points = []
    for run in samples.of_series(results, SEARCH, side):
        good = samples.attained(samples.asked(run), results.slo)
        if run.rate_per_s is not None and good is not None:
            points.append(RatePoint(run.rate_per_s, good))
    return points


def _parts(results: StudyResults, side: str, arm: PlannedArm) -> _Parts:
    if arm.resources.gpus:
        return _Parts("GPU", arm.resources.gpus)
    if arm.resources.cores is not None:
        return _Parts("core", arm.resources.cores)
    # Without a word in the plan an arm has all cores of the machine that starts it.
    ran = samples.of_series(results, SEARCH, side) if arm.started else []
    cores = ran[0].before.get("host.cores", "") if ran else ""
    return _Parts("core", len([one for one in cores.split(",") if one]))


def _found(
    arm: PlannedArm, points: Sequence[RatePoint], parts: _Parts, target: float
) -> tuple[Cell, ...]:
    if not points:
        return (arm.label, *(Figure(None, "") for _ in _COLUMNS[1:]))
    found = found_in(points, target)
    whole = _bounded(found, 1, "requests/s", len(points))
    each: Cell = "nobody says of how many"
    if parts.count:
        each = _bounded(found, parts.count, f"requests/s per {parts.name}", len(points))
    return arm.label, whole, each, _rate(found.not_shown), _rate(found.missed)


def _rate(per_s: float) -> str:
    return "no rate tried" if math.isinf(per_s) else f"{number(per_s)}/s"


def _bounded(found: Goodput, parts: int, unit: str, n: int) -> Figure:
    bounds = Interval(found.carried / parts, found.not_shown / parts, 0.95)
    return Figure(found.carried / parts, unit, n, "steps", interval=bounds)


def _tried(arm: PlannedArm, points: Sequence[RatePoint], target: float) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for point in smoothed(points):
        raw, bounds = _raw(points, point.rate), clopper_pearson(point.good, DECIDES)
        measured = Figure(100 * raw.share, "%", raw.total, "requests")
        interval = Interval(100 * bounds.low, 100 * bounds.high, DECIDES)
        smooth = Figure(100 * point.good.share, "%", point.good.total, "requests", "", interval)
        standing = "met" if bounds.low >= target else "missed" if bounds.high < target else "open"
        rows.append((arm.label, f"{number(point.rate)}/s", measured, smooth, standing))
    return rows


def _raw(points: Sequence[RatePoint], rate: float) -> Count:
    return pooled([point.good for point in points if point.rate == rate])


def _plot(
    arms: Sequence[tuple[str, PlannedArm]],
    points: Mapping[str, list[RatePoint]],
    parts: Mapping[str, _Parts],
    target: float,
) -> Rates:
    names = {part.name if part.count else "" for part in parts.values()}
    name = names.pop() if len(names) == 1 else ""
    counts = {side: part.count if name else 1 for side, part in parts.items()}
    drawn = tuple(
        plots.RatesOfArm(f"{side}: {arm.label}", _drawn(points[side], counts[side]))
        for side, arm in arms
    )
    unit = f"1/s per {name}" if name else "1/s"
    return Rates("Attainment over the rate, made to never rise", unit, target, drawn)


def _drawn(points: Sequence[RatePoint], parts: int) -> tuple[plots.RatePoint, ...]:
    found = []
    for point in smoothed(points):
        bounds, n = clopper_pearson(point.good), _raw(points, point.rate).total
        share = point.good.share
        found.append(plots.RatePoint(point.rate / parts, share, bounds.low, bounds.high, n))
    return tuple(found)
