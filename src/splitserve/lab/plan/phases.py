"""From a plan to the ordered list of its runs. Pure.

    baseline    single: idle, capacity where loads are shares of it, single against itself,
                and between several single arms on requests that the verdict never sees
    rows        each chunk size, and the pass-through proxy, in pairs with the single arm
    function    pd: short requests, one and two at a time, before any time counts
    target      single and pd in pairs, at the cell the decision is for
    prompt_len, output_cap, concurrency, pd_ratio, tp_pp_network
                the axes, in this order, each value in pairs
    goodput     each arm's search for its highest rate
    faults      pd, once per fault
    rollback    single, back from pd under load, single again

The two runs of a pair are in one order or the other, drawn in blocks ABBA or BAAB by
``stats.design`` from the plan's seed and the series' own name, so that a series added later moves
no other.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from splitserve.errors import ConfigError
from splitserve.lab.plan.arms import PlannedArm
from splitserve.lab.plan.resolve import Plan
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
    that stand alone; ``position`` is 0 or 1 within the pair. ``side`` is A or B: of an A/A pair
    both are the same arm. Runs with the same cell and ``shard`` get the same requests.
    ``seconds`` is an estimate, with the arm's start where the arm before was another one.
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
    """All runs in order. A desk study has none."""
    if plan.study.study.verification == DESK:
        return ()
    runs: list[Run] = []
    before: PlannedArm | None = None
    for number, step in enumerate(_steps(plan), 1):
        seconds = _seconds(plan.study, step, before)
        runs.append(_run(number, step, seconds))
        before = step.arm
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
    requests = plan.study.workload.corpus.requests
    spare = _first_spare_shard(plan.study)
    for fault in plan.study.further.faults:
        yield _Step("faults", fault, target, plan.split, spare, requests)
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
    first = max(stats.pairs, stats.series_pairs)
    yield from _pairs(plan, "baseline", "A/A", target, single, stats.aa_pairs, first)


def _rows(plan: Plan) -> Iterator[_Step]:
    cell = target_cell(plan.study)
    for row in (*plan.of_family(CHUNKED), *plan.of_family(PROXY)):
        yield from _pairs(plan, "rows", row.label, cell, row, plan.study.stats.series_pairs)


def _function(plan: Plan) -> Iterator[_Step]:
    corpus, target = plan.study.workload.corpus, plan.study.target
    prompt = _shortest(corpus.prompt_tokens, target.prompt)
    output = _shortest(corpus.output_tokens, target.output)
    spare = _first_spare_shard(plan.study)
    for under_way in (1, 2):
        cell = _closed(prompt, output, under_way)
        yield _Step("function", "function", cell, plan.split, spare, FUNCTION_REQUESTS)


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
    steps = plan.study.further.goodput_runs
    if steps:
        cell = target_cell(plan.study)
        yield from _pairs(plan, "goodput", "goodput", cell, plan.split, steps)


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


def _seconds(study: Study, step: _Step, before: PlannedArm | None) -> float:
    """Start, settling, warm-up, window and the last answer."""
    cell, corpus, metrics = step.cell, study.workload.corpus, study.metrics
    answer_s = _answer_s(study, cell)
    gap_s = 1 / cell.rate_per_s if cell.rate_per_s else answer_s / (cell.concurrency or 1)
    restarts = before is None or before.label != step.arm.label
    start_s = study.budget.start_s if step.arm.started and (restarts or _always(study)) else 0.0
    warmup_s = max(metrics.warmup_min_s, corpus.warmup_requests * gap_s)
    if step.pair is None and step.requests < corpus.requests:
        warmup_s = 0.0
    drain_s = min(metrics.drain_s, answer_s)
    seconds = start_s + study.state.settle_s + warmup_s + step.requests * gap_s + drain_s
    return round(seconds, 1)


def _answer_s(study: Study, cell: Cell) -> float:
    tokens = study.workload.corpus.output_tokens.get(cell.output, _LENGTH_OF_WHOLE)
    return _OF_SLO * (study.slo.ttft_ms + tokens * study.slo.itl_ms) / 1000


def _always(study: Study) -> bool:
    return study.state.cache_reset == "restart"
