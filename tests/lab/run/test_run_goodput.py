"""The search for the highest rate: its steps follow from the journal, and from nothing else."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from lab.plan.made_plan import data, plan_of
from lab.run.rig import Heard, begun, go
from lab.run.served import Served, served
from lab.run.tiny_study import url_study
from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.plan.phases import Run, runs_of
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.goodput import found_text, next_per_s
from splitserve.lab.run.journal import Entry, Journal, State, read_entries
from splitserve.lab.run.rates import CAPACITY, Rates
from splitserve.lab.stats.goodput import RatePoint
from splitserve.lab.stats.shares import Count

MORE = "[further]\ngoodput_runs = 3"


def only_goodput(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(plan: Plan) -> tuple[Run, ...]:
        return tuple(run for run in runs_of(plan) if run.phase == "goodput")

    monkeypatch.setattr("splitserve.lab.run.study.runs_of", search)
    # Rules about the client have tests of their own; here no busy machine should void a step.
    monkeypatch.setattr("splitserve.lab.run.making.why_void", lambda *_: None)


def rates(plan: Plan, folder: StudyFolder, state: State = State.ACCEPTED) -> dict[str, list[float]]:
    """Of each arm's steps, in order."""
    last = {one.number: one for one in read_entries(folder.journal_path)}
    found: dict[str, list[float]] = {"one": [], "split": []}
    for run in runs_of(plan):
        entry = last.get(run.number)
        if entry is not None and entry.state is state:
            found[run.arm].append(entry.rate_per_s or 0.0)
    return found


def refusing(server: Served) -> None:
    """From now on it answers the lab's probe, and nothing else."""

    def refuse(number: int) -> None:
        del number
        if len(server.prompts[-1]) == 16:
            raise web.HTTPServiceUnavailable(text="full")

    server.after = refuse


async def test_each_arm_goes_up_while_it_meets_the_slo_and_down_while_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_goodput(monkeypatch)
    async with served() as one, served() as split:
        refusing(split)
        study = url_study(tmp_path, one.url, split.url, more=MORE)
        plan, folder = begun(study, tmp_path / "out")
        await go(study, plan, folder)
    assert rates(plan, folder) == {"one": [40, 80, 160], "split": [40, 20, 10]}


async def test_a_search_that_was_stopped_goes_on_with_the_rates_it_would_have_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_goodput(monkeypatch)
    async with served() as one, served() as split:
        study = url_study(tmp_path, one.url, split.url, more=MORE)
        plan, folder = begun(study, tmp_path / "out")
        steps = [run for run in runs_of(plan) if run.phase == "goodput"]

        def stop(run: Run) -> None:
            if run.number == steps[3].number:
                running.cancel()

        running = asyncio.ensure_future(go(study, plan, folder, Heard(stop)))
        with pytest.raises(asyncio.CancelledError):
            await running
        # Nothing of the first half is in this process's memory that the second half needs.
        resumed = await go(study, plan, folder)
    assert resumed.runs == [run.number for run in steps[3:]]
    assert rates(plan, folder) == {"one": [40, 80, 160], "split": [40, 80, 160]}


async def test_a_step_that_is_given_up_ends_its_arms_search_and_not_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_goodput(monkeypatch)
    async with served() as one, served() as split:
        study = url_study(tmp_path, one.url, split.url, more=MORE)
        plan, folder = begun(study, tmp_path / "out")
        steps = [run for run in runs_of(plan) if run.phase == "goodput"]
        bad = next(run for run in steps if run.arm == "split" and run.position == 1)

        def judge(records: list[object], *rest: object) -> str | None:
            is_bad = records and getattr(records[0], "run", "") == str(bad.number)
            return "it was late" if is_bad else None

        monkeypatch.setattr("splitserve.lab.run.making.why_void", judge)
        heard = await go(study, plan, folder)
    assert rates(plan, folder) == {"one": [40, 80, 160], "split": [40]}
    assert [line for line in heard.lines if "a step before it does not count" in line]


async def test_a_search_ends_when_its_two_sides_are_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_goodput(monkeypatch)

    def shown(rate: float, *rest: object) -> RatePoint:
        return RatePoint(40 if rate < 50 else 41, Count(100 if rate < 50 else 0, 100))

    monkeypatch.setattr("splitserve.lab.run.rates.point_of", shown)
    async with served() as one, served() as split:
        study = url_study(tmp_path, one.url, split.url, more=MORE)
        plan, folder = begun(study, tmp_path / "out")
        heard = await go(study, plan, folder)
    assert rates(plan, folder) == {"one": [40, 80], "split": [40, 80]}
    skipped = [line for line in heard.lines if "40/s is met and 41/s is not shown to be" in line]
    assert len(skipped) == 2


def test_a_search_begins_at_the_targets_rate_as_it_was_measured(tmp_path: Path) -> None:
    target = {
        "prompt": "L", "output": "S", "load": 0.5, "load_unit": "of_capacity",
        "capacity_guess_per_s": 4.0,
    }  # fmt: skip
    made = data(target=target, slo__attainment=0.5, further={"goodput_runs": 1})
    plan, folder = plan_of(made), StudyFolder(tmp_path)
    journal = Journal(folder.journal_path)
    runs = runs_of(plan)
    step = next(run for run in runs if run.phase == "goodput")
    for rung in (run for run in runs if run.series == CAPACITY):
        rate = rung.cell.rate_per_s or 0.0
        folder.write_records(rung.number, [answer(rate <= 3.0) for _ in range(20)])
        journal.add(Entry(number=rung.number, attempt=1, state=State.ACCEPTED, at="now"))
    # Half of 3 a second, the highest rung that was carried; half of the guess is 2.
    assert Rates(plan.study, runs, journal, folder).of(step) == 1.5


def answer(good: bool) -> RequestRecord:
    return RequestRecord(
        request_id="r",
        arm="one",
        run="1",
        intended_s=0.0,
        sent_s=0.0,
        first_byte_s=0.1,
        events=[(0.1, 1), (0.11, 1)],
        ended_s=0.2,
        outcome=Outcome.OK if good else Outcome.TRUNCATED,
        counting=Counting.IDS,
    )


@given(st.floats(0.1, 100.0), st.integers(1, 14))
def test_the_next_rate_lies_between_what_is_met_and_what_is_not(knee: float, steps: int) -> None:
    points: list[RatePoint] = []
    for _ in range(steps):
        rate = next_per_s(1.0, points, 0.9)
        if rate is None:
            assert "is met" in found_text(points, 0.9)
            break
        met = [p.rate for p in points if p.rate <= knee]
        missed = [p.rate for p in points if p.rate > knee]
        assert max(met, default=0.0) < rate < min(missed, default=float("inf"))
        points.append(RatePoint(rate, Count(100 if rate <= knee else 0, 100)))
