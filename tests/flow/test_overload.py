"""More requests than real worker processes can answer. Counts, not times."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx
import msgspec
import pytest
from client import body
from cluster import FAKE, Cluster, leftovers, running, wait_until

from splitserve.errors import OverloadError
from splitserve.ids import RequestId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.sampling import SamplingParams
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.orchestrator import Router

SEATS, TOKENS, STEP_MS = 4, 20, 20
ANSWER_S = TOKENS * STEP_MS / 1000
CAPACITY = SEATS / ANSWER_S
"""Answers a second of one decode worker, at most."""

DEADLINE_S = 2.0
SLOW = (*FAKE, "--fake-step-ms", str(STEP_MS), "--max-num-seqs", str(SEATS))
ROLES = (("prefill", "p0"), ("decode", "d0"))


@dataclass
class Tally:
    first_tokens: list[float] = field(default_factory=list)
    refused: list[OverloadError] = field(default_factory=list)
    refused_after: list[float] = field(default_factory=list)
    whole: int = 0

    @property
    def attainment(self) -> float:
        return sum(t <= DEADLINE_S for t in self.first_tokens) / len(self.first_tokens)


@pytest.fixture
def workers(model: str) -> Iterator[Cluster]:
    """Worker processes without a gateway: the test holds the router."""
    with tempfile.TemporaryDirectory(prefix="ss-") as run_dir:
        cluster = Cluster(model, Path(run_dir), SLOW)
        try:
            starting = [cluster.launch_worker(role, name) for role, name in ROLES]
            for spawned in starting:
                cluster.workers[spawned.name] = spawned.wait()
            yield cluster
        finally:
            cluster.stop()
        assert not leftovers(run_dir)


@asynccontextmanager
async def routed(cluster: Cluster) -> AsyncIterator[Router]:
    addresses = [cluster.address(name) for _, name in ROLES]
    config = RouterConfig(ttft_deadline_s=DEADLINE_S)
    router = Router(config, addresses, gateway="overload")
    await router.start()
    try:
        await _until(lambda: router.ready() is None and not router.warnings())
        yield router
        await _until(lambda: _idle(router))
        assert router.ledger.empty
        assert (router.open_requests, router.waiting_requests) == (0, 0)
    finally:
        await router.close()


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _idle(router: Router) -> bool:
    return all(w.kv is not None and w.kv.idle and not w.in_flight for w in router.snapshot())


_names = count()


def _request() -> GenerateRequest:
    number = next(_names)
    ids = tuple(300 + (number * 31 + i * 7) % 1000 for i in range(12))
    return GenerateRequest(
        RequestId(f"r{number}"), ids, SamplingParams(seed=1, max_tokens=TOKENS, temperature=0.0)
    )


async def _ask(router: Router, tally: Tally, request: GenerateRequest) -> None:
    clock = asyncio.get_running_loop().time
    asked, tokens = clock(), 0
    try:
        async for chunk in router.generate(request):
            if not tokens:
                tally.first_tokens.append(clock() - asked)
            tokens += len(chunk.token_ids)
    except OverloadError as error:
        assert tokens == 0
        tally.refused.append(error)
        tally.refused_after.append(clock() - asked)
    else:
        assert tokens == TOKENS
        tally.whole += 1


async def offered(router: Router, per_s: float, seconds: float) -> Tally:
    """So many requests a second, evenly, whatever becomes of them."""
    tally = Tally()
    async with asyncio.TaskGroup() as group:
        for _ in range(int(per_s * seconds)):
            group.create_task(_ask(router, tally, _request()))
            await asyncio.sleep(1 / per_s)
    return tally


async def test_at_three_times_capacity_those_let_in_keep_their_deadline(workers: Cluster) -> None:
    async with routed(workers) as router:
        calm = await offered(router, CAPACITY, 3)
        crowded = await offered(router, 3 * CAPACITY, 6)
    assert crowded.attainment >= calm.attainment - 0.05
    assert len(crowded.refused) >= crowded.whole
    assert {error.status for error in crowded.refused} == {429}
    assert all(error.retry_after_s > 0 for error in crowded.refused)
    assert crowded.whole == len(crowded.first_tokens)
    assert crowded.whole + len(crowded.refused) == int(3 * CAPACITY * 6)


async def test_a_small_owner_is_served_beside_a_flood_of_another(workers: Cluster) -> None:
    async with routed(workers) as router:
        flood, single = Tally(), Tally()
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                request = msgspec.structs.replace(_request(), owner="flood")
                group.create_task(_ask(router, flood, request))
            await _until(lambda: len(flood.first_tokens) >= SEATS)
            begun = len(flood.first_tokens)
            await _ask(router, single, msgspec.structs.replace(_request(), owner="single"))
            meanwhile = flood.whole - begun
    assert single.whole == 1
    assert meanwhile <= 3 * SEATS


def test_over_http_a_full_line_is_429_with_retry_after_and_the_reason(model: str) -> None:
    quick = (*FAKE, "--fake-step-ms", "3", "--max-num-seqs", str(SEATS))
    with running(model, ROLES, quick) as cluster:
        answers = _at_once(cluster, 450)
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(refused) >= 10
        for answer in refused:
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["code"] == "overloaded"
            assert "requests" in answer.json()["error"]["message"]
        cluster.assert_settles()
        told = cluster.total("splitserve_admission_total", decision="refused")
        assert told == len(refused)
        waits = cluster.total("splitserve_queue_wait_seconds_count")
        assert waits == cluster.total("splitserve_admission_total", decision="admitted")
        assert cluster.total("splitserve_queue_depth") == 0


def _at_once(cluster: Cluster, number: int) -> list[httpx.Response]:
    async def ask(client: httpx.AsyncClient, name: int) -> httpx.Response:
        ids = [300 + (name * 31 + i * 7) % 1000 for i in range(12)]
        return await client.post(
            f"{cluster.url}/v1/completions", json=body(cluster, ids, TOKENS), timeout=50
        )

    async def all_of_them() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=number)
        async with httpx.AsyncClient(limits=limits) as client:
            return await asyncio.gather(*(ask(client, name) for name in range(number)))

    return asyncio.run(all_of_them())


def test_without_a_ready_worker_the_answer_is_503_at_once(model: str) -> None:
    with running(model, ROLES, FAKE) as cluster:
        for worker in cluster.workers.values():
            worker.kill()
        wait_until(lambda: not cluster.ready(), 5, lambda: "/ready stays 200")
        answer = httpx.post(
            f"{cluster.url}/v1/completions", json=body(cluster, [300, 301], 4), timeout=10
        )
        assert answer.status_code == 503
        assert "no worker is ready" in answer.json()["error"]["message"]
