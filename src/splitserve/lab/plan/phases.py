"""From a plan to the ordered list of its runs. Pure.

    baseline    single: idle, capacity where loads are shares of it, single against itself,
                and between several single arms on requests that the verdict never sees
    rows        each chunk size, and the pass-through proxy, in pairs with the single arm
    function    pd: short requests, one and two at a time, before any time counts
    target      single and pd in pairs, at the cell the decision is for
    prompt_len, output_cap, concurrency, pd_ratio, tp_pp_network
                the axes, in this order, each value in pairs
    goodput     each arm's search for its highest rate, step by step, each step from the last
    faults      pd, once per fault
    rollback    single, back from pd under load, single again

The two runs of a pair are in one order or the other, drawn in blocks ABBA or BAAB by
``stats.design`` from the plan's seed and the series' own name, so that a series added later moves
no other.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from splitserve.errors import ConfigError
from splitserve.lab.plan.arms import PlannedArm
from splitserve.lab.plan.faults import arm_under, heals_in_s, users_under, why_not_made
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.plan.search import check_search
from splitserve.lab.plan.study import (
    CHUNKED,
    CONCURRENCY,
    DESK,
    OF_CAPACITY,
    OUTPUT_CAP,
    PROMPT_LEN,
    PROXY,
    SINGLE,
    Axis,
    Study,
)
from splitserve.lab.stats.design import interleaved

GOODPUT: Final = "goodput"
FAULTS: Final = "faults"
"""Phases whose runs are made in a way of their own."""

ALONE: Final = "alone"
"""The single arm with the function phase's requests, one at a time: both must answer the same."""

IDLE_REQUESTS: Final = 10
FUNCTION_REQUESTS: Final = 15
CAPACITY_RUNGS: Final = 6

_OF_SLO: Final = 0.3
"""An answer is taken for this share of its SLO, in estimates of time only."""

_LENGTH_OF_WHOLE: Final = 1024
"""What an answer of a file's own length is taken for, in estimates of time only."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Lengths by name, and either a rate in requests a second or requests under way.

    A ``rate_per_s`` from ``of_capacity`` is an estimate until the capacity is measured; ``load`` is
    what the plan says.
    """

    prompt: str
    output: str
    load: str
    rate_per_s: float | None
    concurrency: int | None

    def text(self) -> str:
        return f"{self.prompt}/{self.output} {self.load}"


@dataclass(frozen=True, slots=True)
class Run:
    """One run, the ``number``-th of the study from 1.

    ``series`` names the comparison it belongs to; its ``pair`` counts from 0 and is None for runs
    that stand alone; ``position`` is 0 or 1 within the pair, and of a search its step from 0.
    ``side`` is A or B: of an A/A pair both are the same arm. Runs with the same cell and ``shard``
    get the same requests. ``seconds`` is an estimate, with the arm's start where the arm before was
    another one.
    """

    number: int
    phase: str
    series: str
    cell: Cell
    pair: int | None
    position: int
    side: str
    arm: str
    shard: int
    requests: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Step:
    """A run without its number and its time."""

    phase: str
    series: str
    cell: Cell
    arm: PlannedArm
    shard: int
    requests: int
    pair: int | None = None
    position: int = 0
    side: str = "A"


def runs_of(plan: Plan) -> tuple[Run, ...]:
    """All runs in order. A desk study has none. Raises ConfigError for a search that could show
    nothing."""
    if plan.study.study.verification == DESK:
        return ()
    runs: list[Run] = []
    before: _Step | None = None
    for number, step in enumerate(_steps(plan), 1):
        runs.append(_run(number, step, _seconds(plan, step, before)))
        before = step
    return tuple(runs)


def _run(number: int, step: _Step, seconds: float) -> Run:
    return Run(
        number=number,
        phase=step.phase,
        series=step.series,
        cell=step.cell,
        pair=step.pair,
        position=step.position,
        side=step.side,
        arm=step.arm.label,
        shard=step.shard,
        requests=step.requests,
        seconds=seconds,
    )


def check_budget(plan: Plan, runs: tuple[Run, ...]) -> None:
    """Raises ConfigError when ``runs`` take longer than the plan allows."""
    takes_s, allowed_s = sum(run.seconds for run in runs), plan.study.budget.seconds
    if takes_s > allowed_s:
        raise ConfigError(
            f"budget.seconds: is {allowed_s:.0f}, and the {len(runs)} runs take about "
            f"{takes_s:.0f} s; raise it, lower workload.corpus.requests, or drop values of an axis"
        )


def needs_warmup(run: Run | _Step, study: Study) -> bool:
    """Short runs that stand alone look at single requests, not at a state to be reached."""
    return run.pair is not None or run.requests >= study.workload.corpus.requests


def at_rate(study: Study, run: Run, rate_per_s: float) -> Run:
    """``run`` at a rate that was found out meanwhile, and how long it takes then."""
    cell = replace(run.cell, rate_per_s=rate_per_s)
    longer_s = _load_s(study, cell, run.requests) - _load_s(study, run.cell, run.requests)
    return replace(run, cell=cell, seconds=round(run.seconds + longer_s, 1))


def target_cell(study: Study) -> Cell:
    """The cell that the decision is taken for."""
    target, arrivals = study.target, study.workload.arrivals
    if arrivals.concurrency is not None:
        return _closed(target.prompt, target.output, arrivals.concurrency)
    if target.load_unit == OF_CAPACITY:
        rate = target.load * (target.capacity_guess_per_s or 1.0)
        return Cell(target.prompt, target.output, f"{target.load:g} of capacity", rate, None)
    return Cell(target.prompt, target.output, f"{target.load:g}/s", target.load, None)


def _steps(plan: Plan) -> Iterator[_Step]:
    yield from _baseline(plan)
    yield from _rows(plan)
    yield from _function(plan)
    target, stats = target_cell(plan.study), plan.study.stats
    yield from _pairs(plan, "target", "target", target, plan.split, stats.pairs)
    for axis in plan.study.axes:
        yield from _axis(plan, axis)
    yield from _goodput(plan)
    yield from _faults(plan)
    yield from _rollback(plan)


def _baseline(plan: Plan) -> Iterator[_Step]:
    study, single = plan.study, plan.baseline
    stats, requests, target = study.stats, study.workload.corpus.requests, target_cell(study)
    spare = _first_spare_shard(study)
    for prompt in _prompts(study):
        cell = _closed(prompt, target.output, 1)
        yield _Step("baseline", "idle", cell, single, spare, IDLE_REQUESTS)
    if study.target.load_unit == OF_CAPACITY:
        guess = study.target.capacity_guess_per_s or 1.0
        for rung in range(1, CAPACITY_RUNGS + 1):
            rate = guess * 1.5 * rung / CAPACITY_RUNGS
            cell = Cell(target.prompt, target.output, f"rung {rung}", rate, None)
            yield _Step("baseline", "capacity", cell, single, spare, requests)
    others = [arm for arm in plan.of_family(SINGLE) if arm is not single]
    for other in others:
        series = f"{single.label} or {other.label}"
        yield from _pairs(plan, "baseline", series, target, other, stats.series_pairs, spare)
    yield _Step("baseline", ALONE, _short_cell(plan, 1), single, spare, FUNCTION_REQUESTS)
    first = max(stats.pairs, stats.series_pairs)
    yield from _pairs(plan, "baseline", "A/A", target, single, stats.aa_pairs, first)


def _rows(plan: Plan) -> Iterator[_Step]:
    cell = target_cell(plan.study)
    for row in (*plan.of_family(CHUNKED), *plan.of_family(PROXY)):
        yield from _pairs(plan, "rows", row.label, cell, row, plan.study.stats.series_pairs)


def _function(plan: Plan) -> Iterator[_Step]:
    spare = _first_spare_shard(plan.study)
    for under_way in (1, 2):
        cell = _short_cell(plan, under_way)
        yield _Step("function", "function", cell, plan.split, spare, FUNCTION_REQUESTS)


def _short_cell(plan: Plan, under_way: int) -> Cell:
    corpus, target = plan.study.workload.corpus, plan.study.target
    prompt = _shortest(corpus.prompt_tokens, target.prompt)
    return _closed(prompt, _shortest(corpus.output_tokens, target.output), under_way)


def _axis(plan: Plan, axis: Axis) -> Iterator[_Step]:
    study, target = plan.study, target_cell(plan.study)
    for value in axis.values:
        text, cell, arm = str(value), target, plan.variants.get(str(value), plan.split)
        if axis.name == PROMPT_LEN:
            cell = Cell(text, target.output, target.load, target.rate_per_s, target.concurrency)
        elif axis.name == OUTPUT_CAP:
            cell = Cell(target.prompt, text, target.load, target.rate_per_s, target.concurrency)
        elif axis.name == CONCURRENCY:
            cell = _closed(target.prompt, target.output, int(value))
        series = f"{axis.name}={text}"
        yield from _pairs(plan, axis.name, series, cell, arm, study.stats.series_pairs)


def _goodput(plan: Plan) -> Iterator[_Step]:
    """Steps of both arms in turn, since they share hardware and time; each counts by itself. All
    rates but the first are estimates: a step's follows from those before it."""
    study, steps = plan.study, plan.study.further.goodput_runs
    if not steps:
        return
    check_search(study)
    target, requests = study.target, study.workload.corpus.requests
    known = target_cell(study).rate_per_s
    start_per_s = target.load if known is None else known
    cell = Cell(target.prompt, target.output, "search", start_per_s, None)
    for slot in interleaved(steps, _seed(study.stats.order_seed, GOODPUT, GOODPUT)):
        arm = plan.baseline if slot.arm == "A" else plan.split
        yield _Step(
            GOODPUT, GOODPUT, cell, arm, slot.pair, requests, position=slot.pair, side=slot.arm
        )


def _faults(plan: Plan) -> Iterator[_Step]:
    study, target = plan.study, target_cell(plan.study)
    spare, requests = _first_spare_shard(study), study.workload.corpus.requests
    for fault in study.further.faults:
        users = users_under(fault)
        cell = target if users is None else _closed(target.prompt, target.output, users)
        yield _Step(FAULTS, fault, cell, arm_under(plan, fault), spare, requests)


def _rollback(plan: Plan) -> Iterator[_Step]:
    study = plan.study
    if study.rollback is None:
        return
    back = next(arm for arm in plan.of_family(SINGLE) if arm.label == study.rollback.target)
    cell, shard = target_cell(study), _first_spare_shard(study)
    names = (("before", back), ("back under load", plan.split), ("after", back))
    for series, arm in names:
        yield _Step("rollback", series, cell, arm, shard, study.workload.corpus.requests)


def _pairs(
    plan: Plan, phase: str, series: str, cell: Cell, other: PlannedArm, pairs: int, first: int = 0
) -> Iterator[_Step]:
    """``pairs`` of baseline (side A) and ``other`` (side B) at ``cell``, from shard ``first``."""
    seed = _seed(plan.study.stats.order_seed, phase, series)
    requests = plan.study.workload.corpus.requests
    for slot in interleaved(pairs, seed):
        arm = plan.baseline if slot.arm == "A" else other
        yield _Step(
            phase, series, cell, arm, first + slot.pair, requests,
            slot.pair, slot.position % 2, slot.arm,
        )  # fmt: skip


def _first_spare_shard(study: Study) -> int:
    """The first whose requests no pair sees: for tuning and whatever decides nothing."""
    stats = study.stats
    return max(stats.pairs, stats.series_pairs) + stats.aa_pairs


def _seed(order_seed: int, phase: str, series: str) -> int:
    name = f"{order_seed}/{phase}/{series}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big")


def _prompts(study: Study) -> tuple[str, ...]:
    """The prompt lengths that the study uses, the target's first."""
    axis = next((axis for axis in study.axes if axis.name == PROMPT_LEN), None)
    values = tuple(str(value) for value in axis.values) if axis else ()
    return tuple(dict.fromkeys((study.target.prompt, *values)))


def _shortest(bands: dict[str, int], otherwise: str) -> str:
    return min(bands, key=lambda name: bands[name]) if bands else otherwise


def _closed(prompt: str, output: str, under_way: int) -> Cell:
    return Cell(prompt, output, f"{under_way} under way", None, under_way)


def _seconds(plan: Plan, step: _Step, before: _Step | None) -> float:
    """Start, settling, the load, and of a fault the time until all is whole again."""
    study = plan.study
    heals_s = 0.0
    if step.phase == FAULTS:
        if why_not_made(plan, step.series) is not None:
            return 0.0
        heals_s = heals_in_s(study, step.series)
    # What had a fault is not used again.
    restarts = before is None or before.arm.label != step.arm.label or before.phase == FAULTS
    start_s = study.budget.start_s if step.arm.started and (restarts or _always(study)) else 0.0
    load_s = _load_s(study, step.cell, step.requests, warms_up=needs_warmup(step, study))
    return round(start_s + study.state.settle_s + load_s + heals_s, 1)


def _load_s(study: Study, cell: Cell, requests: int, *, warms_up: bool = True) -> float:
    """Warm-up, window and the last answer."""
    metrics, answer_s = study.metrics, _answer_s(study, cell)
    gap_s = 1 / cell.rate_per_s if cell.rate_per_s else answer_s / (cell.concurrency or 1)
    warmup_s = max(metrics.warmup_min_s, study.workload.corpus.warmup_requests * gap_s)
    return warmup_s * warms_up + requests * gap_s + min(metrics.drain_s, answer_s)


def _answer_s(study: Study, cell: Cell) -> float:
    tokens = study.workload.corpus.output_tokens.get(cell.output, _LENGTH_OF_WHOLE)
    return _OF_SLO * (study.slo.ttft_ms + tokens * study.slo.itl_ms) / 1000


def _always(study: Study) -> bool:
    return study.state.cache_reset == "restart"
