"""Workers that leave, come back and change what they are for, while requests run."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from client import Stream, body, complete
from cluster import FAKE, Cluster, Process, running, wait_until
from tiny_model import VOCAB_SIZE

from splitserve.engine.fake import FakeConfig, fake_tokens
from splitserve.launch import running as launch
from splitserve.launch.supervise import Deployment
from splitserve.launch.talk import talk
from splitserve.launch.topology import (
    FakeCosts,
    GatewayAsked,
    ModelAsked,
    Topology,
    WorkerGroup,
)
from splitserve.processes.worker import FAKE_TOKEN_HIGH, FAKE_TOKEN_LOW
from splitserve.protocol.control import Drain, RoleSet, SetRole

CONFIG = FakeConfig(vocab_size=VOCAB_SIZE, token_low=FAKE_TOKEN_LOW, token_high=FAKE_TOKEN_HIGH)
SLOW = (*FAKE, "--fake-step-ms", "5")
COLOCATED = (("colocated", "c0"), ("colocated", "c1"))


def truth(prompt: Sequence[int], count: int) -> list[int]:
    return fake_tokens(prompt, count, config=CONFIG)


def prompt(seed: int, length: int) -> list[int]:
    return [300 + (seed * 31 + i * 7) % 1000 for i in range(length)]


def ends(process: Process, within_s: float = 10) -> int:
    """The exit code, which comes by itself."""
    wait_until(lambda: not process.alive, within_s, lambda: f"{process.name} stays")
    return process.popen.returncode


def busy(cluster: Cluster) -> str:
    """The worker that runs the one stream there is."""
    names = [name for name in cluster.workers if runs(cluster, name)]
    assert len(names) == 1, names
    return names[0]


def runs(cluster: Cluster, name: str) -> float:
    return cluster.total("splitserve_requests_running", worker=name)


# Leaving


def test_sigterm_lets_what_runs_finish(model: str) -> None:
    with running(model, COLOCATED, SLOW) as cluster:
        ids = prompt(1, 40)
        stream = Stream(cluster, ids, 100)
        stream.read(5)
        wait_until(lambda: runs(cluster, "c0") + runs(cluster, "c1") == 1, 5, lambda: "idle")
        leaving = cluster.workers[busy(cluster)]
        leaving.popen.terminate()
        stream.read_all()
        assert stream.tokens == truth(ids, 100)
        assert ends(leaving) == 0
        assert cluster.total("splitserve_fallback_total") == 0
        assert complete(cluster, prompt(2, 20), 4) == truth(prompt(2, 20), 4)
        stream.close()


@pytest.mark.parametrize("roles", [COLOCATED, (("prefill", "p0"), ("decode", "d0"))])
def test_what_outlives_the_grace_goes_on_elsewhere_in_the_same_stream(
    model: str, roles: Sequence[tuple[str, str]]
) -> None:
    with running(model, roles, SLOW) as cluster:
        ids = prompt(3, 40)
        stream = Stream(cluster, ids, 300)
        stream.read(20)
        wait_until(lambda: sum(runs(cluster, n) for _, n in roles) == 1, 5, lambda: "idle")
        leaving = cluster.workers[busy(cluster)]
        said = asyncio.run(talk(cluster.address(leaving.name), Drain(0.1)))
        assert said.load.draining
        assert ends(leaving) == 0
        assert not stream.ended
        stream.read_all()
        assert stream.tokens == truth(ids, 300)
        assert stream.finish_reason == "length"
        assert cluster.total("splitserve_fallback_total", rung="replay") == 1
        stream.close()
        del cluster.workers[leaving.name]
        settled(cluster)


def settled(cluster: Cluster) -> None:
    """As ``assert_settles``, of the workers that are left."""

    def idle() -> bool:
        blocks = {n: s for n, s in cluster.kv_blocks().items() if n in cluster.workers}
        return bool(blocks) and all(
            states["free"] + states["cached"] == sum(states.values()) for states in blocks.values()
        )

    wait_until(idle, 5, lambda: f"blocks are not given back: {cluster.kv_blocks()}")


# Restarting


@dataclass
class Load:
    """Streams, one after another in each of ``lanes``, every answer compared."""

    url: str
    served: str
    lanes: int = 6
    answered: int = 0
    wrong: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        over = asyncio.Event()
        async with httpx.AsyncClient(timeout=30) as client, asyncio.TaskGroup() as group:
            for lane in range(self.lanes):
                group.create_task(self._lane(client, lane, over))
            try:
                yield
            finally:
                over.set()

    async def _lane(self, client: httpx.AsyncClient, lane: int, over: asyncio.Event) -> None:
        number = 0
        while not over.is_set():
            number += 1
            ids = prompt(lane * 1000 + number, 10 + (lane * 7 + number * 3) % 50)
            await self._stream(client, ids, 20 + (number * 13) % 60)

    async def _stream(self, client: httpx.AsyncClient, ids: list[int], count: int) -> None:
        tokens: list[int] = []
        asked = {"model": self.served, "prompt": ids, "max_tokens": count, "temperature": 0}
        asked |= {"stream": True, "return_token_ids": True}
        async with client.stream("POST", f"{self.url}/v1/completions", json=asked) as answer:
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    if answer.status_code != 200:
                        self.wrong.append(f"{answer.status_code}: {line}")
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    self.wrong.append(line)
                for choice in event.get("choices", ()):
                    tokens += choice.get("token_ids") or []
        self.answered += 1
        if tokens != truth(ids, count):
            self.wrong.append(f"{len(tokens)} tokens instead of {count}, or others")


class Deployed(Cluster):
    """A deployment under the real supervisor, looked at as a Cluster."""

    deployment: Deployment

    @property
    def url(self) -> str:
        return self.deployment.url


def shape(model: str, *roles: str) -> Topology:
    costs = FakeCosts(step_ms=4, num_blocks=512)
    return Topology(
        model=ModelAsked(name=model, served_model_name="m", block_size=4),
        gateway=GatewayAsked(port=0),
        workers=tuple(WorkerGroup(role=role, engine="fake", fake=costs) for role in roles),
    )


@pytest.mark.parametrize(
    "roles", [("prefill", "decode"), ("colocated", "colocated")], ids=["1p1d", "2colocated"]
)
async def test_every_worker_is_restarted_under_load_without_a_failed_request(
    model: str, roles: tuple[str, str]
) -> None:
    said: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ss-") as logs:
        async with launch.running(shape(model, *roles), log_dir=Path(logs)) as deployment:
            load = Load(deployment.url, "m")
            pids = {process.pid for process in deployment.processes}
            async with load.flowing():
                await deployment.restart_workers(said.append)
                enough = load.answered + load.lanes
                while load.answered < enough:  # noqa: ASYNC110 - the lanes are not ours to wait for
                    await asyncio.sleep(0.02)
            assert load.wrong == []
            assert len(pids & {process.pid for process in deployment.processes}) == 1
            assert said[-1] == "restarted 2 workers"
            cluster = Deployed(model, Path(logs), ())
            cluster.deployment = deployment
            await asyncio.to_thread(cluster.assert_settles)
            outcomes = cluster.total("splitserve_generations_total")
            assert cluster.total("splitserve_generations_total", outcome="done") == outcomes
            assert outcomes == load.answered


# Roles


def test_two_colocated_workers_become_a_pair_and_a_role_stays_a_while(model: str) -> None:
    with running(model, COLOCATED, FAKE) as cluster:
        assert complete(cluster, prompt(4, 40), 4) == truth(prompt(4, 40), 4)
        assert cluster.total("splitserve_handoff_bytes_total") == 0
        for name, role in (("c0", "prefill"), ("c1", "decode")):
            said = asyncio.run(talk(cluster.address(name), SetRole(role)))
            assert said.role == RoleSet(role)
        again = asyncio.run(talk(cluster.address("c0"), SetRole("decode")))
        assert again.role is not None
        assert (again.role.role, bool(again.role.refused)) == ("prefill", True)
        seed = iter(range(5, 1000))

        def moves() -> bool:
            ids = prompt(next(seed), 40)
            assert complete(cluster, ids, 4) == truth(ids, 4)
            return cluster.total("splitserve_handoff_bytes_total") > 0

        wait_until(moves, 10, lambda: "the pair is not used as one")
        cluster.assert_settles()


# Readiness


def test_the_first_request_after_ready_finds_its_links_made(model: str) -> None:
    """Ready waits for the link: the gateway finds both workers there and not yet joined."""
    with tempfile.TemporaryDirectory(prefix="ss-") as run_dir:
        cluster = Cluster(model, Path(run_dir), FAKE)
        try:
            cluster.start_worker("decode", "d0")
            cluster.start_worker("prefill", "p0")
            cluster.start_gateway(["p0", "d0"])
            ids = prompt(6, 40)
            assert complete(cluster, ids, 4) == truth(ids, 4)
            assert cluster.total("splitserve_fallback_total") == 0
            assert cluster.total("splitserve_handoff_bytes_total") > 0
            cluster.assert_settles()
        finally:
            cluster.stop()


def test_a_frozen_or_leaving_worker_makes_nobody_ready(model: str) -> None:
    with running(model, [("colocated", "c0")], SLOW) as cluster:
        worker = cluster.workers["c0"]
        worker.freeze()
        wait_until(lambda: not cluster.ready(), 5, lambda: "ready with a frozen worker")
        worker.thaw()
        wait_until(cluster.ready, 5, lambda: cluster.ready_answer().text)
        stream = Stream(cluster, prompt(7, 20), 200)
        stream.read(3)
        asyncio.run(talk(cluster.address("c0"), Drain(30.0)))
        wait_until(lambda: not cluster.ready(), 5, lambda: "ready with a leaving worker")
        assert "draining" in cluster.ready_answer().text
        refused = httpx.post(f"{cluster.url}/v1/completions", json=body(cluster, [300], 2))
        assert refused.status_code == 503
        stream.read_all()
        assert stream.tokens == truth(prompt(7, 20), 200)
        assert ends(worker) == 0
        stream.close()
