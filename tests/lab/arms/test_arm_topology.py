"""An arm that the lab starts leaves nothing behind, however the lab ends."""

import asyncio
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lab.run.tiny_study import topology_study
from launch.deployments import gone
from splitserve.clock import monotonic
from splitserve.lab.arms.topology import TopologyArm
from splitserve.lab.arms.topology_text import observed, topology_text
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.request import Asking, LoadRequest
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.target import resolve
from splitserve.lab.measure.latency import ttft_user
from splitserve.lab.measure.parts import Part, gap_parts, ttft_parts
from splitserve.lab.plan.arms import PlannedArm
from splitserve.lab.plan.resolve import read_plan
from splitserve.launch.topology import parse_topology, read_topology
from splitserve.lifecycle import StartFailed

ROOT = Path(__file__).parents[3]
TOPOLOGIES = sorted((ROOT / "topologies").glob("*.toml"))


@pytest.mark.parametrize("path", TOPOLOGIES, ids=[path.stem for path in TOPOLOGIES])
def test_a_topology_is_written_as_it_was_read_but_for_the_times_it_tells(path: Path) -> None:
    topology = read_topology(path)
    written = parse_topology(tomllib.loads(topology_text(topology)))
    assert written == observed(topology)
    assert written.gateway.enable_per_request_metrics
    assert written.workers == topology.workers


def split_arm(folder: Path) -> PlannedArm:
    return read_plan(topology_study(folder)).split


async def test_an_arm_serves_says_what_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    arm = TopologyArm(split_arm(tmp_path), tmp_path / "arm", reset_cache=False)
    await arm.start()
    try:
        members, described = arm.members, await arm.describe()
        # The launcher, a gateway and two workers.
        assert len(members) == 4
        assert await arm.alive() is None
        assert described.config["prefill.connector"] == "shm"
        assert described.live["software.version"]
        assert "gateway.port" not in described.config
    finally:
        await arm.stop()
    assert gone(members, within_s=5)
    assert arm.left_behind == 0


async def test_an_arm_tells_with_each_answer_where_its_time_went(tmp_path: Path) -> None:
    arm = TopologyArm(split_arm(tmp_path), tmp_path / "arm", reset_cache=False)
    await arm.start()
    try:
        labels = Labels("split", "0", monotonic())
        asking = Asking(arm.endpoint.model)
        client = LoadClient(await resolve(arm.endpoint.url), asking, labels, Limits())
        record = await client.send(LoadRequest("r", tuple(range(20, 60)), 6), 0.0)
        client.close()
    finally:
        await arm.stop()
    parts, gap = ttft_parts(record), gap_parts(record)
    assert parts is not None
    assert gap is not None
    known = {part: seconds for part, seconds in parts.items() if part is not Part.RESIDUAL}
    assert known.keys() >= {Part.GATEWAY, Part.GRANT, Part.QUEUE, Part.PREFILL}
    assert min(known.values()) >= 0
    assert sum(known.values()) <= ttft_user(record)
    assert gap.keys() == {Part.HANDOFF, Part.STEP, Part.RESIDUAL}


async def test_a_worker_that_was_started_again_is_noticed(tmp_path: Path) -> None:
    arm = TopologyArm(split_arm(tmp_path), tmp_path / "arm", reset_cache=False)
    await arm.start()
    try:
        worker = max(arm.members)
        os.kill(worker, signal.SIGKILL)
        assert gone([worker], within_s=5)
        wrong = await arm.alive()
        assert wrong is not None
        assert "1 of its 4 processes ended" in wrong
    finally:
        await arm.stop()


def test_nothing_is_left_when_the_lab_is_killed(tmp_path: Path) -> None:
    study = topology_study(tmp_path)
    script = Path(__file__).with_name("topology_pids.py")
    with subprocess.Popen(
        [sys.executable, str(script), str(study), str(tmp_path / "arm")],
        stdout=subprocess.PIPE,
        text=True,
    ) as lab:
        assert lab.stdout is not None
        members = [int(pid) for pid in lab.stdout.readline().split()]
        lab.kill()
    assert len(members) == 4
    assert gone(members, within_s=10)


async def test_an_arm_that_cannot_start_says_why(tmp_path: Path) -> None:
    planned = split_arm(tmp_path)
    (tmp_path / "model" / "tiny" / "tokenizer.json").unlink()
    arm = TopologyArm(planned, tmp_path / "arm", reset_cache=False)
    with pytest.raises(StartFailed, match=r"arm split did not start: .*tokenizer"):
        await arm.start()
    assert arm.members == frozenset()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
