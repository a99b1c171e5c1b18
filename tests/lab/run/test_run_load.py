"""What a run sends, and when."""

from dataclasses import replace
from pathlib import Path

import pytest

from lab.run.tiny_study import url_study
from splitserve.lab.load.corpus.synthetic import Vocabulary
from splitserve.lab.plan.phases import Run, runs_of
from splitserve.lab.plan.resolve import read_plan
from splitserve.lab.run.prompts import Source
from splitserve.lab.run.timing import ClosedLoad, OpenLoad, load_of


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Source, Run]:
    plan = read_plan(url_study(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:2"))
    run = next(run for run in runs_of(plan) if run.series == "target")
    return Source(plan.study, None, Vocabulary(1500), 4096), run


def opened(run: Run, source: Source) -> OpenLoad:
    load = load_of(run, run.cell.rate_per_s, source)
    assert isinstance(load, OpenLoad)
    return load


def test_both_arms_get_the_same_load(planned: tuple[Source, Run]) -> None:
    source, run = planned
    other = replace(run, number=99, arm="split", side="B", position=1)
    assert opened(run, source) == opened(other, source)


def test_another_shard_shares_neither_prompts_nor_times(planned: tuple[Source, Run]) -> None:
    source, run = planned
    one, other = opened(run, source), opened(replace(run, shard=run.shard + 1), source)
    prompts = [{due.turns[0].prompt for due in load.schedule} for load in (one, other)]
    assert not prompts[0] & prompts[1]
    assert [due.at_s for due in one.schedule] != [due.at_s for due in other.schedule]


def test_a_run_measures_the_number_of_requests_that_was_planned(
    planned: tuple[Source, Run],
) -> None:
    source, run = planned
    load = opened(run, source)
    measured = [due for due in load.schedule if not due.warmup]
    assert len(measured) == run.requests
    assert all(due.at_s >= load.measured_s for due in measured)
    assert all(due.at_s < load.measured_s for due in load.schedule if due.warmup)


def test_warm_up_and_measured_requests_have_no_prompt_in_common(
    planned: tuple[Source, Run],
) -> None:
    source, run = planned
    by_kind: dict[bool, set[object]] = {True: set(), False: set()}
    for due in opened(run, source).schedule:
        by_kind[due.warmup].add(due.turns[0].prompt)
    assert by_kind[True]
    assert not by_kind[True] & by_kind[False]


def test_a_closed_loop_warms_up_by_requests(planned: tuple[Source, Run]) -> None:
    source, run = planned
    closed = replace(run, cell=replace(run.cell, rate_per_s=None, concurrency=2))
    load = load_of(closed, None, source)
    assert isinstance(load, ClosedLoad)
    ids = [talk[0].request_id for talk in load.talks]
    assert load.warmup == frozenset(ids[:4])
    assert len(ids) == 4 + run.requests


def test_a_run_that_stands_alone_and_is_short_has_no_warm_up(planned: tuple[Source, Run]) -> None:
    source, run = planned
    idle = replace(run, pair=None, requests=5, cell=replace(run.cell, concurrency=1))
    load = load_of(idle, None, source)
    assert isinstance(load, ClosedLoad)
    assert (len(load.talks), load.warmup) == (5, frozenset())
