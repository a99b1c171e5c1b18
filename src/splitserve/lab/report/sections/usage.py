"""How full the KV pools were while a run went on."""

import re
from collections.abc import Mapping
from typing import Final

from splitserve.lab.report.blocks import Text
from splitserve.lab.report.plots import Course, Usage
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.sections.arms import at_target

_BLOCKS: Final = re.compile(r'splitserve_kv_blocks\{state="(\w+)",worker="([^"]*)"\}')
_VLLM: Final = re.compile(r'vllm:kv_cache_usage_perc\{.*engine="([^"]*)".*\}')
_IDLE: Final = ("free", "cached")
"""Blocks that a new sequence may have at once."""


def kv_usage(results: StudyResults) -> tuple[Usage | Text, ...]:
    """Of the first run of each arm at the target cell."""
    drawn = []
    for name, runs in at_target(results):
        sampled = next((run for run in runs if run.samples), None)
        if sampled is not None and (courses := _courses(sampled)):
            title = f"KV pools in use, {name}, run {sampled.run.number}"
            drawn.append(Usage(title, "blocks in use", courses))
    if drawn:
        return tuple(drawn)
    says = (
        "No plot of KV and GPU use over time: servers were asked before and after each run, not "
        "within. Scrape their /metrics, and the GPUs' exporter, beside the study to see it."
    )
    return (Text(says),)


def _courses(run: RunResult) -> tuple[Course, ...]:
    found: dict[str, list[tuple[float, float]]] = {}
    for sample in run.samples:
        for worker, percent in _in_use(sample.metrics).items():
            found.setdefault(worker, []).append((sample.t_s, percent))
    return tuple(Course(worker, tuple(points)) for worker, points in sorted(found.items()))


def _in_use(metrics: Mapping[str, float]) -> dict[str, float]:
    """Percent of each worker's pool."""
    whole: dict[str, float] = {}
    used: dict[str, float] = {}
    told: dict[str, float] = {}
    for name, value in metrics.items():
        if ours := _BLOCKS.fullmatch(name):
            state, worker = ours.groups()
            whole[worker] = whole.get(worker, 0.0) + value
            used[worker] = used.get(worker, 0.0) + value * (state not in _IDLE)
        elif theirs := _VLLM.fullmatch(name):
            told[f"engine {theirs[1]}"] = 100 * value
    return told | {worker: 100 * used[worker] / n for worker, n in whole.items() if n}
