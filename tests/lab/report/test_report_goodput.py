"""Section "Goodput per GPU"."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from made_results import lost, results

from splitserve.lab.measure.attainment import Slo
from splitserve.lab.plan.arms import Resources
from splitserve.lab.report.blocks import Section, Table, Text
from splitserve.lab.report.figure import Figure
from splitserve.lab.report.plots import Rates
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.sections.goodput import goodput

REQUESTS = 60


def searched(attained: dict[tuple[str, float], int], resources: Resources) -> StudyResults:
    """Steps of both arms: of ``REQUESTS`` answers so many are whole, by side and rate."""
    made: StudyResults = results(requests=REQUESTS)
    steps: list[RunResult] = []
    like = {
        side: next(r for r in made.runs if r.run.phase == "goodput" and r.run.side == side)
        for side in "AB"
    }
    for (side, rate), good in attained.items():
        records = like[side].records
        kept = (*records[:good], *lost(records[good:]))
        steps.append(replace(like[side], records=kept, rate_per_s=rate))
    others = [one for one in made.runs if one.run.phase != "goodput"]
    arms = tuple(replace(arm, resources=resources) for arm in made.plan.arms)
    slo = msgspec.structs.replace(made.plan.study.slo, attainment=0.9)
    study = msgspec.structs.replace(made.plan.study, slo=slo)
    plan = replace(made.plan, study=study, arms=arms)
    return replace(made, plan=plan, runs=(*others, *steps), slo=Slo(ttft_s=10.0))


def rows(section: Section, caption: str) -> list[tuple[Any, ...]]:
    return next(b.rows for b in section.blocks if isinstance(b, Table) and b.caption == caption)


def figure(cell: Any) -> Figure:
    assert isinstance(cell, Figure)
    return cell


STEPS = {
    ("A", 2.0): 60, ("A", 4.0): 20, ("A", 2.8): 54,
    ("B", 2.0): 60, ("B", 4.0): 60,
}  # fmt: skip


def test_the_highest_rate_met_stands_with_the_next_one_that_is_not_shown_to_be() -> None:
    section = goodput(searched(STEPS, Resources(2, None)))
    single, split = rows(section, "")
    assert (single[0], figure(single[1]).value, figure(single[2]).value) == ("one", 2, 1)
    assert figure(single[2]).unit == "requests/s per GPU"
    assert single[3:] == ("2.8/s", "4/s")
    assert (figure(split[1]).value, split[3:]) == (4, ("no rate tried", "no rate tried"))


def test_every_rate_tried_says_whether_it_is_met_missed_or_open() -> None:
    tried = rows(goodput(searched(STEPS, Resources(2, None))), "Attainment at every rate tried")
    assert [(row[0], row[1], row[-1]) for row in tried] == [
        ("one", "2/s", "met"),
        ("one", "2.8/s", "open"),
        ("one", "4/s", "missed"),
        ("split", "2/s", "met"),
        ("split", "4/s", "met"),
    ]


def test_attainment_that_rises_with_the_rate_is_pooled_and_the_raw_share_shown() -> None:
    steps = {("A", 2.0): 54, ("A", 4.0): 60, ("B", 2.0): 60}
    made = goodput(searched(steps, Resources(2, None)))
    low, high = rows(made, "Attainment at every rate tried")[:2]
    assert [figure(row[2]).value for row in (low, high)] == [90, 100]
    assert [figure(row[3]).value for row in (low, high)] == [95, 95]
    plot = next(block for block in made.blocks if isinstance(block, Rates))
    shares = [point.share for point in plot.arms[0].points]
    assert shares == sorted(shares, reverse=True)
    assert [point.n for point in plot.arms[0].points] == [60, 60]
    assert all(p.low <= p.share <= p.high for arm in plot.arms for p in arm.points)


@pytest.mark.parametrize(
    ("resources", "unit"),
    [
        (Resources(2, None), "1/s per GPU"),
        (Resources(0, 2), "1/s per core"),
        (Resources(0, None), "1/s"),
    ],
    ids=["gpus", "cores", "unknown"],
)
def test_rates_are_per_gpu_or_else_per_core(resources: Resources, unit: str) -> None:
    section = goodput(searched(STEPS, resources))
    plot = next(block for block in section.blocks if isinstance(block, Rates))
    assert plot.unit == unit
    parts = 1 if unit == "1/s" else 2
    assert [[p.rate * parts for p in arm.points] for arm in plot.arms] == [[2, 2.8, 4], [2, 4]]
    each = rows(section, "")[0][2]
    assert (each == "nobody says of how many") == (parts == 1)


def test_cores_that_no_plan_names_are_those_of_the_machine() -> None:
    made = searched(STEPS, Resources(0, None))
    told = tuple(replace(run, before={"host.cores": "0,1,2,3"}) for run in made.runs)
    single, _ = rows(goodput(replace(made, runs=told)), "")
    assert figure(single[2]).unit == "requests/s per core"
    assert figure(single[2]).value == 0.5


def test_without_a_search_it_says_how_to_make_one() -> None:
    section = goodput(searched({}, Resources(2, None)))
    (block,) = section.blocks
    assert isinstance(block, Text)
    assert "[further] goodput_runs" in block.says


def test_it_says_how_long_a_step_looks() -> None:
    section = goodput(searched(STEPS, Resources(2, None)))
    first = section.blocks[0]
    assert isinstance(first, Text)
    assert "300 requests after at least 30 s of warm-up" in first.says
