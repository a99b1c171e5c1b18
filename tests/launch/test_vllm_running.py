"""vLLM instances under the supervisor: real processes, with a program in place of vLLM."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from flow.tiny_model import make_model_folder
from splitserve.launch.keep import Limits, State, Supervised
from splitserve.launch.restart import RestartPolicy
from splitserve.launch.running import running
from splitserve.launch.supervise import Deployment
from splitserve.launch.topology import GatewayAsked, ModelAsked, Topology, WorkerGroup, checked
from splitserve.lifecycle import StartFailed

from .deployments import Watcher, children, gone, is_running

PROGRAM = (sys.executable, str(Path(__file__).with_name("fake_vllm_program.py")))
LIMITS = Limits(stop_s=2.0, restart=RestartPolicy(first_s=0.01))
QUESTION = {"model": "tiny", "prompt": "one two", "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_folder(tmp_path_factory.mktemp("model") / "tiny")


def topology(model: Path, *roles: str, **keys: Any) -> Topology:
    groups = tuple(WorkerGroup(engine="vllm", role=r, command=PROGRAM, **keys) for r in roles)
    asked = ModelAsked(name=str(model), served_model_name="tiny")
    return checked(Topology(model=asked, workers=groups, gateway=GatewayAsked(port=0)))


def url_of(process: Supervised) -> str:
    return process.spec.address.removeprefix("vllm+").partition("?")[0]


async def life_of(process: Supervised) -> dict[str, Any]:
    """What that instance says of its life."""
    async with httpx.AsyncClient() as client:
        life: dict[str, Any] = (await client.get(f"{url_of(process)}/life")).json()
        return life


async def completed(deployment: Deployment) -> int:
    async with httpx.AsyncClient(timeout=20) as client:
        answer = await client.post(f"{deployment.url}/v1/completions", json=QUESTION)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["usage"]["completion_tokens"])


async def test_a_split_of_two_instances_serves_and_leaves_nothing(model: Path) -> None:
    async with running(topology(model, "prefill", "decode"), limits=LIMITS) as deployment:
        assert [process.state for process in deployment.processes] == [State.READY] * 3
        assert await completed(deployment) == 4
        async with httpx.AsyncClient() as client:
            metrics = (await client.get(f"{deployment.url}/metrics")).text
        assert 'splitserve_vllm_handoff_total{what="first_token_at_once"} 1.0' in metrics
        cores = [(await life_of(process))["core"] for process in deployment.processes[:2]]
        assert all(is_running(core) for core in cores)
    assert gone(cores, 5)


async def test_one_that_dies_takes_its_children_along_and_comes_back(model: Path) -> None:
    watcher = Watcher()
    async with running(
        topology(model, "colocated"), limits=LIMITS, on_change=watcher
    ) as deployment:
        worker = deployment.processes[0]
        core = (await life_of(worker))["core"]
        assert worker.pid is not None
        (server,) = [child for child in children_of(worker.pid) if child != core]
        os.kill(server, signal.SIGKILL)
        await watcher.until(lambda: watcher.count("colocated-0", State.READY) == 2)
        assert not is_running(core)
        assert worker.restarts == 1
        assert (await life_of(worker))["core"] != core


async def test_a_restart_one_after_another_waits_until_each_is_used_again(model: Path) -> None:
    said: list[str] = []
    async with running(topology(model, "colocated", count=2), limits=LIMITS) as deployment:
        before = [process.pid for process in deployment.processes]
        await deployment.restart_workers(said.append)
        assert not set(before[:2]) & {process.pid for process in deployment.processes}
        assert await completed(deployment) == 4
    assert said[-1] == "restarted 2 workers"


async def test_a_deployment_may_consist_of_a_gateway_alone(model: Path) -> None:
    async with running(topology(model, "prefill", "decode"), limits=LIMITS) as elsewhere:
        urls = [url_of(process) for process in elsewhere.processes[:2]]
        groups = tuple(
            WorkerGroup(engine="vllm", role=role, url=(url,))
            for role, url in zip(("prefill", "decode"), urls, strict=True)
        )
        attached = Topology(
            model=ModelAsked(name=str(model), served_model_name="tiny"),
            workers=groups,
            gateway=GatewayAsked(port=0),
        )
        async with running(checked(attached), limits=LIMITS) as deployment:
            assert [process.spec.role for process in deployment.processes] == ["gateway"]
            assert await completed(deployment) == 4
        assert all([is_running((await life_of(p))["core"]) for p in elsewhere.processes[:2]])


async def test_one_key_opens_the_instances_and_secrets_of_ours_stay_here(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPLITSERVE_STATE_KEY", "s" * 40)
    key = tmp_path / "key"
    key.write_text("sesame\n")
    key.chmod(0o600)
    asked = topology(model, "colocated")
    gateway = GatewayAsked(port=0, vllm_api_key_file=str(key))
    keyed = Topology(model=asked.model, workers=asked.workers, gateway=gateway)
    async with running(keyed, limits=LIMITS) as deployment:
        life = await life_of(deployment.processes[0])
        assert life["env"]["VLLM_API_KEY"] == "sesame"
        assert "SPLITSERVE_STATE_KEY" not in life["env"]
        assert "sesame" not in " ".join(life["argv"])
        assert await completed(deployment) == 4


@pytest.mark.parametrize(
    ("manner", "reason"),
    [("refuse", "exited with code 1"), ("deaf", "was not ready within 1 s")],
    ids=["refuse", "deaf"],
)
async def test_one_that_does_not_start_ends_the_start(
    model: Path, manner: str, reason: str
) -> None:
    before = children()
    asked = topology(model, "colocated", env={"FAKE_VLLM": manner}, startup_timeout_s=1.0)
    with pytest.raises(StartFailed, match=f"^colocated-0 did not start: .*{reason}") as caught:
        async with running(asked, limits=LIMITS):
            pytest.fail("started")
    assert gone(children() - before, 5)
    assert manner == "deaf" or "no such quantization" in caught.value.log


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in listed.split()]
