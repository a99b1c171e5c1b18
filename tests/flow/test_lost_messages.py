"""A real worker and a real router between which a message was lost: each learns of it."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cluster import FAKE, Cluster
from tiny_model import VOCAB_SIZE

from splitserve.engine.fake import FakeConfig, fake_tokens
from splitserve.ids import RequestId
from splitserve.processes.worker import FAKE_TOKEN_HIGH, FAKE_TOKEN_LOW
from splitserve.protocol.control import Abort, Submit
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.sampling import SamplingParams
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.orchestrator import Router
from splitserve.router.workers.client import Order, WorkerEvents
from splitserve.router.workers.native import NativeClient

CONFIG = FakeConfig(vocab_size=VOCAB_SIZE, token_low=FAKE_TOKEN_LOW, token_high=FAKE_TOKEN_HIGH)
PROMPT = tuple(range(300, 340))


class Lossy(NativeClient):
    """Loses the first order of one kind: it seems sent and never arrives."""

    kind: type = Abort
    lost = 0

    def send(self, order: Order) -> bool:
        if isinstance(order, self.kind) and not Lossy.lost:
            Lossy.lost += 1
            return True
        return super().send(order)


@asynccontextmanager
async def joined(
    model: str, names: tuple[str, ...], loses: type, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Router]:
    monkeypatch.setattr(Lossy, "kind", loses)
    monkeypatch.setattr(Lossy, "lost", 0)

    def connect(address: str, events: WorkerEvents) -> Lossy:
        return Lossy(address, events, gateway="g", backoff_s=0.05, max_backoff_s=1.0)

    with tempfile.TemporaryDirectory(prefix="ss-") as run_dir:
        cluster = Cluster(model, Path(run_dir), (*FAKE, "--fake-step-ms", "5"))
        for name in names:
            await asyncio.to_thread(cluster.start_worker, "colocated", name)
        addresses = [cluster.address(name) for name in names]
        router = Router(RouterConfig(), addresses, gateway="g", connect=connect)
        await router.start()
        try:
            await until(lambda: router.warnings() == [])
            yield router
        finally:
            await router.close()
            await asyncio.to_thread(cluster.stop)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - what another process does is not announced
            await asyncio.sleep(0.02)


def request(max_tokens: int) -> GenerateRequest:
    sampling = SamplingParams(seed=1, max_tokens=max_tokens, temperature=0.0)
    return GenerateRequest(RequestId("r"), PROMPT, sampling)


def blocks_in_use(router: Router) -> int:
    kvs = [worker.kv for worker in router.snapshot()]
    assert None not in kvs
    return sum(kv.total - kv.free - kv.cached for kv in kvs if kv is not None)


async def test_a_lost_abort_frees_the_workers_blocks_all_the_same(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joined(model, ("c0",), Abort, monkeypatch) as router:
        answer = router.generate(request(1900))
        await anext(answer)
        await answer.aclose()
        assert router.ledger.empty
        await until(lambda: blocks_in_use(router) > 0)
        await until(lambda: blocks_in_use(router) == 0)
        (worker,) = router.snapshot()
        assert Lossy.lost == 1
        assert (worker.aborted_strays, worker.failed_strays) == (1, 0)


async def test_a_lost_submit_goes_on_at_another_worker(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joined(model, ("c0", "c1"), Submit, monkeypatch) as router:
        tokens = [token async for c in router.generate(request(20)) for token in c.token_ids]
        assert tokens == fake_tokens(PROMPT, 20, config=CONFIG)
        assert Lossy.lost == 1
        assert sum(worker.failed_strays for worker in router.snapshot()) == 1
        assert sum(worker.aborted_strays for worker in router.snapshot()) == 0
        assert router.ledger.empty
        await until(lambda: blocks_in_use(router) == 0)
