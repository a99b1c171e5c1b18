"""Faults of real worker processes under load, and what is told of them."""

import asyncio
import os
from pathlib import Path

import msgspec
import psutil
import pytest

from lab.run.rig import begun, go
from lab.run.served import served
from lab.run.tiny_study import topology_study, url_study
from splitserve.lab.arms.topology import TopologyArm
from splitserve.lab.plan.phases import Run, runs_of
from splitserve.lab.plan.resolve import Plan, read_plan
from splitserve.lab.plan.study import FAULTS
from splitserve.lab.run.faults.blow import aimed
from splitserve.lab.run.faults.seen import BEFORE, FaultSeen
from splitserve.lab.run.faults.small_pool import shrunk
from splitserve.lab.run.faults.workers import worker_of
from splitserve.lab.run.folder import StudyFolder
from splitserve.launch.topology import read_topology


def only_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    def faults(plan: Plan) -> tuple[Run, ...]:
        return tuple(run for run in runs_of(plan) if run.phase == "faults")

    monkeypatch.setattr("splitserve.lab.run.study.runs_of", faults)


def further(*faults: str) -> str:
    return f"[further]\nfaults = [{', '.join(repr(name) for name in faults)}]"


def seen_in(plan: Plan, folder: StudyFolder, fault: str) -> FaultSeen:
    number = next(run.number for run in runs_of(plan) if run.series == fault)
    return msgspec.convert(folder.read_json(f"runs/{number}/fault.json"), FaultSeen)


async def test_a_killed_prefill_worker_is_seen_from_the_fault_to_the_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_faults(monkeypatch)
    study = topology_study(tmp_path, requests=150, more=further("kill_prefill", "slow_link"))
    plan, folder = begun(study, tmp_path / "out")
    heard = await go(study, plan, folder)
    (left_out,) = (line for line in heard.lines if "not measured" in line)
    assert "there is no link to slow" in left_out
    seen = seen_in(plan, folder, "kill_prefill")
    assert seen.what == "prefill-0 was killed (SIGKILL)"
    assert seen.whole_s is not None
    assert seen.began_s < seen.whole_s
    parts = {part.name: part for part in seen.periods}
    assert parts[BEFORE].requests >= 50
    assert parts[BEFORE].outcomes == {"ok": parts[BEFORE].requests}
    assert sum(part.requests for part in seen.periods) >= 150
    assert seen.silent == 0
    assert seen.first_good_s is not None
    # Decode computes prompts itself while nobody prefills, and the gateway says so.
    assert any("no_prefill" in name for name in seen.counters)


async def test_a_full_kv_pool_is_made_by_decode_workers_with_room_for_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_faults(monkeypatch)
    study = topology_study(tmp_path, requests=40, more=further("kv_pool_full"))
    plan, folder = begun(study, tmp_path / "out")
    await go(study, plan, folder)
    seen = seen_in(plan, folder, "kv_pool_full")
    waited = 'splitserve_admission_total{decision="admitted",reason="waited"}'
    assert seen.counters[waited] > 20
    assert seen.silent == 0
    topology = read_topology(folder.path / "arms" / "split@kv_pool_full" / "topology.toml")
    blocks = {group.role: group.fake.num_blocks for group in topology.workers}
    assert blocks == {"prefill": 1024, "decode": 4}


async def test_a_worker_that_was_stopped_goes_on_however_the_lab_is_interrupted(
    tmp_path: Path,
) -> None:
    arm = TopologyArm(read_plan(topology_study(tmp_path)).split, tmp_path / "arm", False)
    await arm.start()
    try:
        blow = await aimed(arm, "timeouts", stop_s=60)
        assert blow.worker.name == "prefill-0"
        falling = asyncio.create_task(blow.fall())
        while psutil.Process(blow.worker.pid).status() != psutil.STATUS_STOPPED:  # noqa: ASYNC110 -- another process is asked
            await asyncio.sleep(0.01)
        falling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await falling
        assert psutil.Process(blow.worker.pid).status() != psutil.STATUS_STOPPED
    finally:
        await arm.stop()


async def test_a_deployment_that_runs_already_is_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_faults(monkeypatch)
    async with served() as one, served() as split:
        study = url_study(tmp_path, one.url, split.url, more=further(*FAULTS))
        plan, folder = begun(study, tmp_path / "out")
        heard = await go(study, plan, folder)
    assert heard.runs == []
    told = [line for line in heard.lines if "split is not the lab's to break" in line]
    assert len(told) == len(FAULTS)


def test_processes_that_are_no_workers_are_left_alone() -> None:
    assert worker_of((os.getpid(), 1), "prefill") is None


def test_a_real_engines_pool_is_made_small_by_its_bytes(tmp_path: Path) -> None:
    topology_study(tmp_path)
    split = read_topology(tmp_path / "split.toml")
    native = (msgspec.structs.replace(group, engine="native") for group in split.workers)
    asked = msgspec.structs.replace(split, workers=tuple(native))
    prefill, decode = shrunk(asked, tokens=100).workers
    # 2 requests of 7 blocks of 16 tokens; K and V of 2 layers, 1 head of 32 numbers of 2 bytes.
    assert decode.kv_cache_memory_bytes == 2 * 7 * 16 * (2 * 2 * 1 * 32 * 2)
    assert prefill.kv_cache_memory_bytes is None
