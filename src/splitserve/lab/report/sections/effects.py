"""B against A at the target cell, over what A differs from itself."""

import math
from collections.abc import Callable, Sequence

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import ttft_user
from splitserve.lab.measure.same_requests import shifts
from splitserve.lab.measure.tail import tail_itl
from splitserve.lab.report import estimates, samples
from splitserve.lab.report.blocks import Block, Cell, Section, Table, Text
from splitserve.lab.report.figure import NOT_MEASURED, Figure
from splitserve.lab.report.plots import Forest, ForestRow, Order, OrderPoint
from splitserve.lab.report.results import StudyResults
from splitserve.lab.report.sections.arms import TARGET
from splitserve.lab.stats.paired import Paired, Scale
from splitserve.lab.verdict.comparison import Comparison, Direction, Directions, compare
from splitserve.lab.verdict.facts import Facts, gather
from splitserve.lab.verdict.improvement import TAIL_ITL, TTFT

ATTAINMENT = "attainment"
FIRST_GAP = "first gap"
THROUGHPUT = "throughput"
Effect = tuple[str, Paired | None, Direction | None]


def differences(results: StudyResults) -> Section:
    """Every quantity on its own line, then pairs and order as plots."""
    facts = gather(results.evidence)
    if facts.target is None:
        return Section("Differences B against A", (Text("No valid pair at the target cell."),))
    control = compare(results.evidence.control)
    level = 1 - results.evidence.rules.alpha
    rows = [
        _row(name, paired, arrow, facts, control, level)
        for name, paired, arrow in _effects(facts.target, facts.arrows)
    ]
    rows.append(_errors(facts.target, level))
    columns = ("quantity", "B against A", "reading", "Holm p", "drift p", "A against itself")
    note = (
        "Ratios B/A for times and throughput, percentage points for shares. ↓ ↑: the interval lies "
        "beyond the smallest effect of interest; =: shown equal; ?: neither."
    )
    blocks: list[Block] = [Table("Effects, paired over runs", columns, tuple(rows), note)]
    blocks.append(_who_pays(results))
    for name, paired in ((TAIL_ITL, facts.target.tail_itl), (TTFT, facts.target.ttft)):
        blocks.append(_forest(name, paired, _floor(facts, name), level))
    blocks.append(_order(facts.target, _floor(facts, TAIL_ITL)))
    return Section("Differences B against A", tuple(blocks))


def _effects(target: Comparison, arrows: Directions | None) -> Sequence[Effect]:
    if arrows is None:
        return ()
    read = {
        TAIL_ITL: arrows.tail_itl,
        TTFT: arrows.ttft,
        ATTAINMENT: arrows.attainment,
        FIRST_GAP: arrows.first_gap,
        THROUGHPUT: arrows.throughput,
    }
    return [(name, paired, read[name]) for name, paired in _named(target).items()]


def _named(compared: Comparison) -> dict[str, Paired | None]:
    return {
        TAIL_ITL: compared.tail_itl,
        TTFT: compared.ttft,
        ATTAINMENT: compared.attainment,
        FIRST_GAP: compared.first_gap,
        THROUGHPUT: compared.throughput,
    }


def _row(
    name: str,
    paired: Paired | None,
    arrow: Direction | None,
    facts: Facts,
    control: Comparison | None,
    level: float,
) -> tuple[Cell, ...]:
    tests = facts.improvement.tests if facts.improvement else {}
    holm = f"{tests[name].adjusted:.3g}" if name in tests else "not tested"
    slope = f"{facts.drifts[name].p:.3g}" if name in facts.drifts else "not tested"
    own = estimates.effect(None if control is None else _named(control)[name], level)
    shown = NOT_MEASURED if arrow is None else arrow.value
    return name, estimates.effect(paired, level), shown, holm, slope, own


def _errors(target: Comparison, level: float) -> tuple[Cell, ...]:
    upper = Figure(
        100 * target.error_upper,
        "pp at most",
        len(target.pairs),
        "pairs",
        f"one-sided {100 * level:g} % bound over requests and runs, the wider one",
    )
    return "errors", upper, NOT_MEASURED, "not tested", "not tested", NOT_MEASURED


def _who_pays(results: StudyResults) -> Table:
    """The same request in both arms of its pair. The pair is the unit: its requests met each other
    in one queue."""
    rule = results.slo.rule
    rows = [
        (name, *_paid(results, value))
        for name, value in ((TTFT, ttft_user), (TAIL_ITL, lambda r: tail_itl(r, rule)))
    ]
    columns = ("quantity", "B/A of the median request", "worse by > 10 %", "better by > 10 %")
    note = "Each request against itself in the other arm; one that failed in one arm only counts."
    return Table("Who pays", columns, tuple(rows), note)


def _paid(
    results: StudyResults, value: Callable[[RequestRecord], float | None]
) -> tuple[Cell, ...]:
    each = [
        found
        for a, b in samples.pairs_of(results, TARGET)
        if (found := shifts(samples.asked(a), samples.asked(b), value)) is not None
    ]
    if not each:
        return NOT_MEASURED, NOT_MEASURED, NOT_MEASURED
    middle = Paired(Scale.RATIO, tuple(one.median for one in each))
    return (
        estimates.effect(middle),
        estimates.average([100 * one.worse for one in each], "% of requests", "pairs"),
        estimates.average([100 * one.better for one in each], "% of requests", "pairs"),
    )


def _floor(facts: Facts, name: str) -> tuple[float, float] | None:
    floor = facts.floors.get(name)
    return None if floor is None else (floor.interval.low, floor.interval.high)


def _forest(name: str, paired: Paired, band: tuple[float, float] | None, level: float) -> Forest:
    each = [ForestRow(f"pair {k}", d) for k, d in enumerate(paired.differences, 1)]
    interval = paired.interval(level)
    whole = ForestRow(f"all, {100 * level:g} %", paired.point, interval.low, interval.high)
    return Forest(f"{name}: ratio B/A per pair", (*each, whole), band)


def _order(target: Comparison, band: tuple[float, float] | None) -> Order:
    points = tuple(
        OrderPoint(pair.position, d, name)
        for name, paired in ((TAIL_ITL, target.tail_itl), (TTFT, target.ttft))
        for pair, d in zip(target.pairs, paired.differences, strict=True)
        if not math.isnan(d)
    )
    return Order("Effects over the order of runs", points, band)
