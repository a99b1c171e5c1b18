"""A router over fake vLLM instances, with a dialect that the tests can read."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fake_vllm import Behavior, Call, FakeVllm, token_after
from router_bench import Notebook, until
from scripted_worker import prompt

from splitserve.ids import HandoffId, WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.orchestrator import Router
from splitserve.router.workers.client import WorkerClient, WorkerEvents
from splitserve.router.workers.vllm.client import VllmClient
from splitserve.router.workers.vllm.dialects.base import (
    Dialect,
    DialectError,
    Instance,
    Leg,
    Params,
)
from splitserve.router.workers.vllm.exchange import Exchange
from splitserve.router.workers.vllm.handshake import shake_hands
from splitserve.router.workers.vllm.settings import VllmWorker

PARAMS = {"blocks": [1, 2]}
"""What a fake prefill returns when all is well."""


@dataclass(frozen=True)
class TestDialect:
    """Decode wants what prefill returned; where legs are concurrent or not ``spoken``, nothing."""

    __test__ = False
    concurrent: bool = False
    spoken: bool = True
    name: str = "test"
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def prefill(self, handoff: HandoffId, prefill: Instance, decode: Instance) -> Leg:
        return Leg({"leg": "prefill"} if self.spoken else None)

    def decode(
        self, handoff: HandoffId, prefill: Instance, decode: Instance, returned: Params | None
    ) -> Leg:
        if not self.spoken:
            return Leg()
        if not self.concurrent and returned is None:
            raise DialectError("prefill returned nothing")
        return Leg({"leg": "decode", "from": prefill.url, **(returned or {})})

    def release(self, returned: Params | None, prefill: Instance | None = None) -> Params | None:
        return None if returned is None else {"leg": "release", **returned}


def leg_of(call: Call) -> str | None:
    return None if call.params is None else call.params["leg"]


def well(call: Call) -> Behavior:
    return Behavior(params=PARAMS if leg_of(call) == "prefill" else None)


class VllmBench:
    """``router`` over the fakes, ``words`` what the exchange noted."""

    def __init__(self, workers: Mapping[str, VllmWorker], dialect: Dialect) -> None:
        self.words: list[str] = []
        self.notes = Notebook()
        self.exchange = Exchange(self.words.append)
        self._workers = workers
        self._dialect = dialect
        self.router = Router(
            RouterConfig(),
            list(workers),
            gateway="g",
            observer=self.notes,
            connect=self.connect,
        )

    def connect(self, address: str, events: WorkerEvents) -> WorkerClient:
        return VllmClient(
            address,
            events,
            self._workers[address],
            self._dialect,
            self.exchange,
            backoff_s=0.01,
            max_backoff_s=0.05,
            try_out=shake_hands,
        )


@asynccontextmanager
async def bench(
    *,
    prefill: FakeVllm | None = None,
    decode: FakeVllm | None = None,
    colocated: FakeVllm | None = None,
    concurrent: bool = False,
    linked: bool = True,
    spoken: bool = True,
    **settings: Any,
) -> AsyncIterator[VllmBench]:
    """Started fakes behind a router that is ready; unless ``linked`` is False, all links there."""
    fakes = {"prefill": prefill, "decode": decode, "colocated": colocated}
    there = {role: fake for role, fake in fakes.items() if fake is not None}
    for fake in there.values():
        await fake.start()
    workers = {
        f"vllm+{fake.url}": VllmWorker(WorkerId(f"{role}-0"), role, fake.url, **settings)
        for role, fake in there.items()
    }
    made = VllmBench(workers, TestDialect(concurrent, spoken))
    await made.router.start()
    try:
        await until(lambda: all(w.unusable == "" for w in made.router.snapshot()))
        await until(lambda: not (linked and made.router.warnings()))
        yield made
    finally:
        await made.router.close()
        for fake in there.values():
            await fake.stop()


def expected(request: GenerateRequest) -> list[int]:
    start = len(request.token_ids)
    return [token_after(start + i) for i in range(request.sampling.max_tokens)]


__all__ = ["PARAMS", "TestDialect", "VllmBench", "bench", "expected", "leg_of", "prompt", "well"]
