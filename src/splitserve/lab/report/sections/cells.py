"""Attainment over two axes at once: prompt length and load."""

from typing import Final

from splitserve.lab.plan.phases import Cell, target_cell
from splitserve.lab.plan.study import CONCURRENCY, PROMPT_LEN
from splitserve.lab.report import samples
from splitserve.lab.report.blocks import Text
from splitserve.lab.report.plots import Heat, Tile
from splitserve.lab.report.results import StudyResults
from splitserve.lab.report.sections.arms import TARGET
from splitserve.lab.stats.shares import Count, pooled

_PHASES: Final = (TARGET[0], PROMPT_LEN, CONCURRENCY)


def attainment_by_cell(results: StudyResults) -> Heat | Text:
    """The target and the series over prompt length and concurrency, at the target's output cap."""
    panels = tuple(
        (f"{side}: {arm.label}", _tiles(results, side))
        for side, arm in (("A", results.plan.baseline), ("B", results.plan.split))
    )
    if max(len(tiles) for _, tiles in panels) < 2:
        return Text(
            "No map of attainment by prompt and load: it needs a second cell, that is an axis "
            f"{PROMPT_LEN} or {CONCURRENCY} in the plan, with its pairs measured."
        )
    return Heat("Requests that kept the SLO", "prompt", "load", panels)


def _tiles(results: StudyResults, side: str) -> tuple[Tile, ...]:
    output = target_cell(results.plan.study).output
    found: dict[Cell, list[Count]] = {}
    for run in samples.accepted(results):
        cell = run.run.cell
        if run.run.phase not in _PHASES or run.run.side != side or cell.output != output:
            continue
        good = samples.attained(samples.asked(run), results.slo)
        if good is not None:
            found.setdefault(cell, []).append(good)
    bands = results.plan.study.workload.corpus.prompt_tokens
    ordered = sorted(found, key=lambda cell: (bands.get(cell.prompt, 0), *_load(cell)))
    return tuple(_tile(cell, pooled(found[cell]), bands.get(cell.prompt)) for cell in ordered)


def _load(cell: Cell) -> tuple[float, float]:
    return cell.rate_per_s or 0.0, cell.concurrency or 0.0


def _tile(cell: Cell, good: Count, tokens: int | None) -> Tile:
    row = cell.prompt if tokens is None else f"{cell.prompt}, {tokens} tokens"
    column = cell.load if cell.concurrency is None else f"{cell.concurrency} under way"
    return Tile(row, column, good.share, good.total)
