"""Whole studies of a few seconds against scripted servers."""

import asyncio
import signal
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from lab.run.rig import Heard, begun, go
from lab.run.served import Served, served
from lab.run.tiny_study import url_study
from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.plan.phases import FUNCTION_REQUESTS, IDLE_REQUESTS, Run, runs_of
from splitserve.lab.plan.resolve import Plan, read_plan
from splitserve.lab.run.conclude import conclude
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.gather import gather
from splitserve.lab.run.journal import State, read_entries
from splitserve.lab.verdict.outcome import Outcome


def accepted(folder: StudyFolder) -> Counter[int]:
    entries = read_entries(folder.journal_path)
    return Counter(one.number for one in entries if one.state is State.ACCEPTED)


@dataclass
class Finished:
    plan: Plan
    folder: StudyFolder
    heard: Heard
    split: Served


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    async def whole() -> Finished:
        place = tmp_path_factory.mktemp("finished")
        async with served() as one, served() as split:
            study = url_study(place, one.url, split.url, more='[rollback]\ntarget = "one"')
            plan, folder = begun(study, place / "out")
            return Finished(plan, folder, await go(study, plan, folder), split)

    return asyncio.run(whole())


def test_a_study_runs_in_the_order_of_its_plan_and_ends_in_a_verdict(finished: Finished) -> None:
    numbers = [run.number for run in runs_of(finished.plan) if run.phase != "rollback"]
    assert finished.heard.runs == numbers
    assert accepted(finished.folder) == Counter(numbers)
    evidence, verdict = conclude(finished.plan, finished.folder)
    assert (len(evidence.target), len(evidence.control)) == (3, 2)
    assert evidence.checks.preflight is True
    assert verdict.outcome is not Outcome.INVALID
    assert finished.folder.read_json("verdict.json")["outcome"] == verdict.outcome.value


def test_what_was_not_measured_is_none_and_never_passed(finished: Finished) -> None:
    evidence = gather(finished.plan, finished.folder)
    assert (evidence.rollback, evidence.handoffs, evidence.second_start) == (None, None, ())
    assert evidence.checks.retries_disclosed is None
    skipped = [line for line in finished.heard.lines if "not measured" in line]
    assert len(skipped) == 3
    assert all("rollback" in line for line in skipped)


def test_both_runs_of_a_pair_ask_the_same_and_no_other_pair_does(finished: Finished) -> None:
    asked: dict[int, list[set[str]]] = {}
    for run in runs_of(finished.plan):
        if run.series == "target" and run.pair is not None:
            ids = {record.request_id for record in finished.folder.read_records(run.number)}
            asked.setdefault(run.pair, []).append(ids)
    assert all(first == second for first, second in asked.values())
    assert not asked[0][0] & asked[1][0]


def test_every_run_has_a_salt_of_its_own(finished: Finished) -> None:
    salts = {body["cache_salt"] for body in finished.split.asked}
    made = set(finished.heard.runs)
    of_split = [run for run in runs_of(finished.plan) if run.arm == "split" and run.number in made]
    assert len(salts) == len(of_split)


async def test_a_cancelled_study_goes_on_at_its_first_incomplete_pair(tmp_path: Path) -> None:
    async with served() as one, served() as split:
        study = url_study(tmp_path, one.url, split.url)
        plan, folder = begun(study, tmp_path / "out")
        runs = runs_of(plan)
        second = next(run for run in runs if run.series == "target" and run.position == 1)

        def stop(run: Run) -> None:
            if run.number == second.number:
                running.cancel()

        running = asyncio.ensure_future(go(study, plan, folder, Heard(stop)))
        with pytest.raises(asyncio.CancelledError):
            await running
        last = read_entries(folder.journal_path)[-1]
        assert (last.state, last.invalid) == (State.VOID, False)
        resumed = await go(study, plan, folder)
    assert resumed.runs[0] == second.number - 1
    assert accepted(folder) == Counter(run.number for run in runs)
    assert (folder.path / f"runs/{second.number - 1}.void-1/requests.jsonl").exists()


async def test_a_lab_that_was_killed_loses_no_more_than_its_pair(tmp_path: Path) -> None:
    async with served() as one, served() as split:
        study = url_study(tmp_path, one.url, split.url)
        script = Path(__file__).with_name("killed_lab.py")
        killed = asyncio.Event()
        # The first runs ask 10 + 4 + 20 requests or more: by then a pair is under way.
        one.after = lambda number: killed.set() if number == 60 else None
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(script),
            str(study),
            str(tmp_path / "out"),
            env={"PYTHONPATH": str(Path(__file__).parents[2])},
        )
        await killed.wait()
        process.send_signal(signal.SIGKILL)
        await process.wait()
        plan, folder = read_plan(study), StudyFolder(tmp_path / "out")
        before = accepted(folder)
        assert before
        resumed = await go(study, plan, folder)
    assert not before.keys() & set(resumed.runs)
    assert accepted(folder) == Counter(run.number for run in runs_of(plan))


async def test_a_server_that_dies_makes_its_run_void_and_the_study_says_so(tmp_path: Path) -> None:
    async with served() as one, served() as split:
        study = url_study(tmp_path, one.url, split.url)
        plan, folder = begun(study, tmp_path / "out")
        first = next(run for run in runs_of(plan) if run.series == "A/A")
        stopping: list[asyncio.Task[None]] = []

        def die(number: int) -> None:
            if number == IDLE_REQUESTS + FUNCTION_REQUESTS + 8:
                stopping.append(asyncio.get_running_loop().create_task(one.stop()))

        one.after = die
        heard = Heard()
        with pytest.raises(UnavailableError, match="does not answer"):
            await go(study, plan, folder, heard)
        await asyncio.gather(*stopping)
    assert [line for line in heard.lines if "did not live through it" in line]
    void = [e for e in read_entries(folder.journal_path) if e.state is State.VOID]
    assert {one.number for one in void} >= {first.number}
    assert not folder.run_folder(first.number).exists()


async def test_a_pair_that_breaks_a_rule_twice_is_left_and_the_study_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as one, served() as split:
        study = url_study(tmp_path, one.url, split.url)
        plan, folder = begun(study, tmp_path / "out")
        bad = next(run for run in runs_of(plan) if run.series == "target")
        told = iter(["it was late", "it was late again"])

        def judge(records: list[object], *rest: object) -> str | None:
            is_bad = records and getattr(records[0], "run", "") == str(bad.number)
            return next(told) if is_bad else None

        monkeypatch.setattr("splitserve.lab.run.making.why_void", judge)
        heard = await go(study, plan, folder)
        again = await go(study, plan, folder)
    assert heard.runs.count(bad.number) == 2
    assert again.runs == []
    evidence, verdict = conclude(plan, folder)
    assert len(evidence.target) == 2
    assert verdict.outcome is Outcome.INVALID
    assert "2 valid pairs of 3" in verdict.reason


async def test_a_split_that_does_not_work_is_not_timed(tmp_path: Path) -> None:
    async with served() as one, served() as split:
        study = url_study(tmp_path, one.url, split.url)
        plan, folder = begun(study, tmp_path / "out")

        def fail(number: int) -> None:
            # The short prompt that asks whether anybody is there is answered.
            if len(split.prompts[-1]) == 16 and number % 10 == 0:
                raise web.HTTPServiceUnavailable(text="no prefill worker")

        split.after = fail
        heard = await go(study, plan, folder)
    target = [run.number for run in runs_of(plan) if run.phase == "target"]
    assert not set(target) & set(heard.runs)
    evidence, verdict = conclude(plan, folder)
    assert evidence.checks.preflight is False
    assert verdict.outcome is Outcome.INVALID


async def test_a_changed_plan_is_another_study(tmp_path: Path) -> None:
    async with served() as one, served() as split:
        study = url_study(tmp_path, one.url, split.url)
        _, folder = begun(study, tmp_path / "out")
        study.write_text(study.read_text().replace("ttft_ms = 250000", "ttft_ms = 250001"))
        with pytest.raises(ConfigError, match="a changed plan is another study"):
            folder.check_plan(read_plan(study))


async def test_arms_of_two_versions_are_not_compared(tmp_path: Path) -> None:
    async with served() as one, served() as split:
        split.version = "2.0"
        study = url_study(tmp_path, one.url, split.url)
        plan, folder = begun(study, tmp_path / "out")
        with pytest.raises(ConfigError, match=r"software\.version is '2.0', and '1.0' in one"):
            await go(study, plan, folder)


async def test_a_server_that_is_not_what_the_plan_says_is_refused(tmp_path: Path) -> None:
    async with served() as one, served() as split:
        study = url_study(tmp_path, one.url, split.url)
        study.write_text(study.read_text().replace("[model]", "[model]\nmax_model_len = 2048"))
        plan, folder = begun(study, tmp_path / "out")
        with pytest.raises(ConfigError, match="max_model_len is 4096, and the plan says 2048"):
            await go(study, plan, folder)
