"""Deployments of real, tiny processes."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from splitserve.errors import UnavailableError
from splitserve.launch.hosts.local import LocalHost
from splitserve.launch.keep import State, Supervised
from splitserve.launch.spec import ProcessSpec
from splitserve.launch.supervise import Deployment
from splitserve.lifecycle import StartFailed

from .deployments import QUICK, Watcher, children, gone, is_running, plan_of, spec


def deployment(
    tmp_path: Path, watcher: Watcher, *workers: ProcessSpec, **gateway: str
) -> Deployment:
    return Deployment(plan_of(*workers, **gateway), LocalHost(tmp_path), watcher, QUICK)


async def test_all_are_ready_inside_and_gone_after(tmp_path: Path) -> None:
    watcher = Watcher()
    async with deployment(tmp_path, watcher, spec("a", "worker"), spec("b", "worker")) as running:
        assert [process.state for process in running.processes] == [State.READY] * 3
        assert running.url == f"http://127.0.0.1:{running.port}"
        pids = [process.pid for process in running.processes]
        assert all(pid and is_running(pid) for pid in pids)
    assert not any(pid and is_running(pid) for pid in pids)
    assert [process.state for process in running.processes] == [State.STOPPED] * 3


async def test_what_the_gateway_does_not_use_is_told_and_holds_up_no_start(tmp_path: Path) -> None:
    async with deployment(tmp_path, Watcher(), spec("a", "worker"), gateway="warns") as running:
        assert running.notes == ("a: draining",)


async def test_the_gateway_stops_before_the_workers(tmp_path: Path) -> None:
    watcher = Watcher()
    async with deployment(tmp_path, watcher, spec("a", "worker"), spec("b", "worker")):
        pass
    stops = [name for name, state in watcher.seen if state is State.STOPPED]
    assert stops[0] == "gateway"


@pytest.mark.parametrize(
    ("kind", "reason", "log"),
    [
        ("refuses", "no such model", "about to give up"),
        ("crashes", "exited with code 7", "traceback, last line"),
        ("babbles", "Expecting value", None),
    ],
)
async def test_one_that_does_not_start_ends_the_start(
    tmp_path: Path, kind: str, reason: str, log: str | None
) -> None:
    before = children()
    with pytest.raises(StartFailed, match=f"^b did not start: {reason}") as caught:
        async with deployment(
            tmp_path, Watcher(), spec("a", "slow"), spec("b", kind), spec("c", "worker")
        ):
            pytest.fail("a deployment with a worker that cannot start was called ready")
    assert children() == before
    assert caught.value.log_path == str(tmp_path / "b.log")
    assert log is None or caught.value.log[-1] == log


async def test_a_program_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    missing = ProcessSpec(name="a", role="worker", argv=("/nonexistent/python",), address="")
    with pytest.raises(StartFailed, match="cannot start /nonexistent/python: No such file"):
        async with deployment(tmp_path, Watcher(), missing):
            pytest.fail("started")


async def test_a_gateway_that_does_not_start_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match=r"^gateway did not start: no such model"):
        async with deployment(tmp_path, Watcher(), spec("a", "worker"), gateway="refuses"):
            pytest.fail("started")


async def test_one_that_dies_later_is_started_again(tmp_path: Path) -> None:
    watcher = Watcher()
    async with deployment(tmp_path, watcher, spec("a", "worker")) as running:
        worker = running.processes[0]
        first = worker.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await watcher.until(lambda: watcher.count("a", State.READY) == 2)
        assert worker.pid != first
        assert worker.restarts == 1
    assert watcher.count("a", State.RESTARTING) == 1


async def test_a_dead_gateway_is_started_again(tmp_path: Path) -> None:
    watcher = Watcher()
    async with deployment(tmp_path, watcher, spec("a", "worker")) as running:
        pid = running.processes[-1].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await watcher.until(lambda: watcher.count("gateway", State.READY) == 2)


async def test_one_that_fails_in_its_second_life_is_tried_a_third_time(tmp_path: Path) -> None:
    watcher = Watcher()
    lives = str(tmp_path / "lives")
    async with deployment(tmp_path, watcher, spec("a", "second_life_fails", lives)) as running:
        pid = running.processes[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await watcher.until(lambda: watcher.count("a", State.READY) == 2)
        assert running.processes[0].restarts == 2


def kill(process: Supervised) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)


async def test_one_that_keeps_dying_is_given_up_and_the_rest_runs_on(tmp_path: Path) -> None:
    watcher, trouble = Watcher(), tmp_path / "trouble"
    workers = spec("a", "dies_later", str(trouble)), spec("b", "worker")
    async with deployment(tmp_path, watcher, *workers) as running:
        dying, steady, gateway = running.processes
        kill(dying)
        await watcher.until(lambda: dying.state is State.GIVEN_UP)
        assert dying.note == (
            "died 5 times within 120 s, exited with code 7 at last; not started again"
        )
        assert dying.restarts == 4
        assert [steady.state, gateway.state] == [State.READY] * 2
        assert watcher.count("a", State.GIVEN_UP) == 1
    assert dying.state is State.STOPPED


async def test_workers_are_restarted_one_after_another(tmp_path: Path) -> None:
    watcher, said = Watcher(), list[str]()
    async with deployment(tmp_path, watcher, spec("a", "worker"), spec("b", "worker")) as running:
        before = [process.pid for process in running.processes]
        watcher.seen.clear()
        await running.restart_workers(said.append)
        after = [process.pid for process in running.processes]
        assert before[2] == after[2]
        assert not set(before[:2]) & set(after)
        assert [process.restarts for process in running.processes] == [0, 0, 0]
    anew = [State.RENEWING, State.STARTING, State.READY]
    assert watcher.seen[:6] == [("a", s) for s in anew] + [("b", s) for s in anew]
    assert said == ["restarting a (1 of 2)", "restarting b (2 of 2)", "restarted 2 workers"]


async def test_a_worker_that_does_not_come_back_ends_the_restart(tmp_path: Path) -> None:
    watcher, trouble = Watcher(), tmp_path / "trouble"
    workers = spec("a", "dies_later", str(trouble)), spec("b", "worker")
    async with deployment(tmp_path, watcher, *workers) as running:
        untouched = running.processes[1].pid
        with pytest.raises(UnavailableError, match=r"^a is given up: died 5 times"):
            await running.restart_workers(lambda line: None)
        assert running.processes[1].pid == untouched
        trouble.unlink()
        await running.restart_workers(lambda line: None)
        assert [process.state for process in running.processes] == [State.READY] * 3


async def test_a_worker_that_ignores_the_restart_is_killed(tmp_path: Path) -> None:
    async with deployment(tmp_path, Watcher(), spec("a", "deaf")) as running:
        pid = running.processes[0].pid
        await running.restart_workers(lambda line: None)
        assert pid is not None
        assert not is_running(pid)
        assert running.processes[0].state is State.READY


async def test_a_stop_in_the_middle_of_a_restart_leaves_nothing(tmp_path: Path) -> None:
    watcher, before = Watcher(), children()
    async with deployment(tmp_path, watcher, spec("a", "worker"), spec("b", "worker")) as running:
        watcher.seen.clear()
        rolling = asyncio.create_task(running.restart_workers(lambda line: None))
        await watcher.until(lambda: watcher.count("a", State.STARTING) == 1)
        rolling.cancel()
    assert children() == before
    assert [process.state for process in running.processes] == [State.STOPPED] * 3


async def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    async with deployment(tmp_path, Watcher(), spec("a", "deaf")) as running:
        pid = running.processes[0].pid
        assert pid is not None
    assert not is_running(pid)


async def test_helpers_of_a_dead_process_die_with_it(tmp_path: Path) -> None:
    watcher = Watcher()
    async with deployment(tmp_path, watcher, spec("a", "family")) as running:
        worker = running.processes[0]
        assert worker.pid is not None
        helper = int(worker.facts["helper"])
        assert is_running(helper)
        os.kill(worker.pid, signal.SIGKILL)
        await watcher.until(lambda: watcher.count("a", State.READY) == 2)
        assert not is_running(helper)


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    before = children()
    watcher = Watcher()
    starting = deployment(tmp_path, watcher, spec("a", "slow"), spec("b", "worker"))

    async def enter() -> None:
        async with starting:
            pytest.fail("a worker that loads for ever was called ready")

    task = asyncio.create_task(enter())
    await watcher.until(lambda: watcher.count("b", State.READY) == 1)
    assert watcher.count("a", State.STARTING) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() == before


async def test_kill_waits_for_nothing_and_nothing_comes_back(tmp_path: Path) -> None:
    async with deployment(tmp_path, Watcher(), spec("a", "deaf")) as running:
        running.kill()
        pids = [process.pid for process in running.processes]
    assert not any(pid and is_running(pid) for pid in pids)
    assert [process.restarts for process in running.processes] == [0, 0]


SUPERVISOR = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from splitserve.launch.hosts.local import LocalHost
from splitserve.launch.supervise import Deployment
from launch.deployments import QUICK, plan_of, spec

async def main():
    plan = plan_of(spec("a", "worker"), spec("b", "deaf"))
    async with Deployment(plan, LocalHost(Path(sys.argv[2])), lambda p: None, QUICK) as running:
        print(*(process.pid for process in running.processes), flush=True)
        await running.run_forever()

asyncio.run(main())
"""


def test_nothing_is_left_after_kill_9_of_the_supervisor(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[1])
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, tests, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout is not None
    with supervisor.stdout:
        pids = [int(pid) for pid in supervisor.stdout.readline().split()]
    assert len(pids) == 3
    supervisor.kill()
    supervisor.wait()
    assert gone(pids, within_s=10), "children outlived their supervisor"
