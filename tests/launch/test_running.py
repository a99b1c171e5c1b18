"""A deployment from a topology, for programs."""

from pathlib import Path

import pytest

from flow.tiny_model import make_model_folder
from splitserve.errors import ConfigError
from splitserve.launch.keep import State
from splitserve.launch.probe import ask_ready
from splitserve.launch.running import running
from splitserve.launch.topology import GatewayAsked, ModelAsked, Topology, WorkerGroup

from .deployments import is_running


def topology(model: Path) -> Topology:
    return Topology(
        model=ModelAsked(name=str(model)),
        gateway=GatewayAsked(port=0),
        workers=(WorkerGroup(engine="fake"),),
    )


async def test_it_is_ready_inside_and_gone_after(tmp_path: Path) -> None:
    model = make_model_folder(tmp_path / "tiny")
    async with running(topology(model)) as deployment:
        assert (await ask_ready("127.0.0.1", deployment.port)).ready
        pids = [process.pid for process in deployment.processes]
        run_dir = Path(deployment.processes[0].spec.address.removeprefix("unix:")).parent
        assert (run_dir / "gateway.log").exists()
    assert [process.state for process in deployment.processes] == [State.STOPPED] * 2
    assert not any(pid and is_running(pid) for pid in pids)
    assert not run_dir.exists()


async def test_a_folder_for_logs_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    model = make_model_folder(tmp_path / "tiny")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="log-dir: cannot make"):
        async with running(topology(model), log_dir=tmp_path / "file" / "logs"):
            pytest.fail("started")
