"""A run whose load is sent from several processes."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab.run.served import Served, served
from lab.run.tiny_study import url_study
from splitserve.lab.arms.descendants import descendants
from splitserve.lab.arms.url import UrlArm
from splitserve.lab.load.corpus.synthetic import Vocabulary
from splitserve.lab.load.record import Outcome
from splitserve.lab.plan.phases import runs_of
from splitserve.lab.plan.resolve import Plan, read_plan
from splitserve.lab.run.execute import Sending, Taken, take
from splitserve.lab.run.prompts import Source
from splitserve.lab.run.timing import OpenLoad, load_of
from splitserve.lab.run.validity import why_void


@pytest.fixture
async def one() -> AsyncIterator[Served]:
    async with served() as server:
        yield server


def planned(one: Served, folder: Path) -> Plan:
    return read_plan(url_study(folder, one.url, "http://127.0.0.1:1", requests=30))


def load_processes() -> list[int]:
    return [
        pid
        for pid in descendants(os.getpid())
        if b"lab.load.spread.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


async def taken_by(plan: Plan, processes: int) -> tuple[Taken, OpenLoad]:
    run = next(run for run in runs_of(plan) if run.series == "target")
    arm = UrlArm(plan.arms[0], None, False)
    load = load_of(run, run.cell.rate_per_s, Source(plan.study, None, Vocabulary(1500), 4096))
    assert isinstance(load, OpenLoad)
    taken = Taken()
    sending = Sending(plan.study, arm, run, "salt", processes)
    await take(sending, load, await arm.describe(), taken, lambda live: None)
    return taken, load


async def test_several_processes_send_what_one_would(one: Served, tmp_path: Path) -> None:
    plan = planned(one, tmp_path)
    taken, load = await taken_by(plan, 2)
    asked = {due.turns[0].request_id: due for due in load.schedule}
    assert sorted(r.request_id for r in taken.records) == sorted(asked)
    for record in taken.records:
        due = asked[record.request_id]
        assert (record.intended_s, record.warmup) == (due.at_s, due.warmup)
        assert record.outcome is Outcome.OK
    assert {body["cache_salt"] for body in one.asked} == {"salt"}
    assert sorted(one.prompts) == sorted(list(due.turns[0].prompt) for due in load.schedule)
    assert why_void(taken.records, plan.study, (), taken.not_alive) is None
    assert not load_processes()


async def test_a_load_process_that_ends_makes_the_run_void(one: Served, tmp_path: Path) -> None:
    plan = planned(one, tmp_path)

    def kill(number: int) -> None:
        if number == 5:
            os.kill(load_processes()[0], signal.SIGKILL)

    one.after = kill
    taken, load = await taken_by(plan, 2)
    assert len(taken.records) < len(load.schedule)
    reason = why_void(taken.records, plan.study, (), taken.not_alive)
    assert reason == "a load process ended before its work: was killed by SIGKILL"
    assert not load_processes()
