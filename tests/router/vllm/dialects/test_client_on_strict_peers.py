"""The real client over the strict instances of every connector: nothing it says is refused."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from router_bench import Answer, Notebook, until
from scripted_worker import prompt

from router.vllm.dialects.families import FAMILIES
from router.vllm.peer_bodies import token_at
from router.vllm.strict_peers import StrictPair, strict_pair
from splitserve.ids import WorkerId
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.orchestrator import Router
from splitserve.router.workers.client import WorkerClient, WorkerEvents
from splitserve.router.workers.vllm.connect import connector
from splitserve.router.workers.vllm.exchange import Exchange
from splitserve.router.workers.vllm.settings import VllmWorker

ASKED = 4


def none_other(address: str, events: WorkerEvents) -> WorkerClient:
    raise AssertionError(f"{address} is no vLLM instance")


@asynccontextmanager
async def routed(pair: StrictPair) -> AsyncIterator[Router]:
    workers = {
        f"vllm+{peer.url}": VllmWorker(WorkerId(f"{role}-0"), role, peer.url, pair.config, facts)
        for role, peer, facts in (
            ("prefill", pair.prefill, pair.rules.prefill_facts),
            ("decode", pair.decode, pair.rules.decode_facts),
        )
    }
    exchange = Exchange(lambda word: None)
    connect = connector(none_other, exchange, backoff_s=0.01, max_backoff_s=0.05, workers=workers)
    router = Router(
        RouterConfig(), list(workers), gateway="g", observer=Notebook(), connect=connect
    )
    await router.start()
    try:
        await until(lambda: router.ready() is None and not router.warnings())
        yield router
    finally:
        await router.close()


@pytest.mark.parametrize("scale_out", [True, False], ids=["generate", "completions"])
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_split_request_is_served_without_a_violation(family: str, scale_out: bool) -> None:
    rules = FAMILIES[family]()
    async with strict_pair(rules, max_tokens=ASKED) as pair:
        pair.prefill.scale_out = pair.decode.scale_out = scale_out
        async with routed(pair) as router:
            answer = await Answer(router, prompt("cmpl-a", max_tokens=ASKED)).ended()
        assert answer.tokens == [token_at(i) for i in range(ASKED)]
        assert (len(pair.prefill.requests), len(pair.decode.requests)) == (1, 1)
        assert pair.held == set()
