"""Load processes on real sockets."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from splitserve.lab.load.driver import Patience
from splitserve.lab.load.record import Outcome, RequestRecord
from splitserve.lab.load.request import Asking, LoadRequest
from splitserve.lab.load.schedule import Due
from splitserve.lab.load.spread.crew import Crew, LoadProcessLost
from splitserve.lab.load.spread.work import split, work_of
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.mock.case import DONE, completion, event, script_of, total
from splitserve.lab.mock.script import Ending, Script
from splitserve.lab.mock.server import MockServer

SAID = [event(completion("a", 1)), event(completion("b", 1, "stop")), total(2), DONE]
ANSWER = script_of(SAID, pace_s=0.0)
NEVER = Script(script_of([], last=b"").sends, Ending.HOLD)


def dues(count: int) -> list[Due]:
    return [
        Due(0.01 * at, (LoadRequest(f"r{at}", (101,), 2),), warmup=at == 0) for at in range(count)
    ]


@asynccontextmanager
async def crew_of(url: str, schedule: list[Due], processes: int) -> AsyncIterator[Crew]:
    patience = Patience(drain_s=20.0, late_s=20.0)
    asked = work_of((url, {}), Asking("m"), ("A", "7"), Limits(), (patience, schedule))
    async with Crew(split(asked, processes)) as crew:
        yield crew


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_records_of_all_processes_are_those_of_one_run() -> None:
    records: list[RequestRecord] = []
    async with MockServer(lambda *_: ANSWER) as server:
        async with crew_of(server.url, dues(9), 2) as crew:
            crew.begin()
            await crew.records(records.append)
            pids = crew.pids
        played = {name: one.arrived_s - crew.origin_s for name, one in server.played.items()}
    assert len(set(pids)) == 2
    assert not any(map(runs, pids))
    assert sorted(one.request_id for one in records) == sorted(f"r{at}" for at in range(9))
    assert {one.outcome for one in records} == {Outcome.OK}
    assert {(one.arm, one.run) for one in records} == {("A", "7")}
    assert [one.request_id for one in records if one.warmup] == ["r0"]
    # One clock: no process sees a request arrive before it was sent, nor answered before it came.
    for one in records:
        assert one.sent_s is not None
        assert one.intended_s <= one.sent_s <= played[one.request_id] <= one.events[0][0]


async def test_a_process_that_is_killed_loses_the_run_and_leaves_nothing() -> None:
    async with MockServer(lambda *_: NEVER) as server, crew_of(server.url, dues(4), 2) as crew:
        crew.begin()
        os.kill(crew.pids[1], signal.SIGKILL)
        with pytest.raises(LoadProcessLost, match="SIGKILL"):
            await crew.records(lambda _: None)
        pids = crew.pids
    assert not any(map(runs, pids))


async def test_a_run_that_is_stopped_leaves_no_process() -> None:
    async with MockServer(lambda *_: NEVER) as server:
        pids: list[int] = []
        begun = asyncio.Event()

        async def run() -> None:
            async with crew_of(server.url, dues(4), 2) as crew:
                pids.extend(crew.pids)
                crew.begin()
                begun.set()
                await crew.records(lambda _: None)

        task = asyncio.create_task(run())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(pids) == 2
    assert not any(map(runs, pids))


async def test_ctrl_c_is_left_to_the_parent() -> None:
    records: list[RequestRecord] = []
    async with MockServer(lambda *_: ANSWER) as server, crew_of(server.url, dues(3), 1) as crew:
        os.kill(crew.pids[0], signal.SIGINT)
        crew.begin()
        await crew.records(records.append)
    assert len(records) == 3


async def test_a_host_that_nobody_knows_is_said_before_the_run() -> None:
    with pytest.raises(LoadProcessLost, match="ended before its work"):
        async with crew_of("http://nowhere.invalid:1", dues(2), 2):
            pytest.fail("it began")
