"""A trio of client, prefill and decode whose times are known: the join gives them back.

Time is moved by hand, so that what comes out of gateway, wire and lab is exact.
"""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from router_bench import Bench, until
from scripted_worker import ScriptedWorker

from frontend.samples import byte_level_inner, served
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.forms import COMPLETION
from splitserve.frontend.generation import GenerationEndpoint, Service
from splitserve.frontend.measures import FrontendMetrics
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.ids import RequestId
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.load.wire.answer import Answer, outcome_of
from splitserve.lab.load.wire.sse import SseEvent
from splitserve.lab.measure.parts import Part, gap_parts, handoff_s, ttft_parts, unexplained
from splitserve.protocol.control import Began, StepTokens, Submit
from splitserve.protocol.generate import TokenChunk
from splitserve.protocol.handoff import Prefill, PrefillDone, Reserve
from splitserve.router.handoff.orchestrator import Router

NET_S, GRANT_S, QUEUE_S, PREFILL_S = 0.001, 0.004, 0.030, 0.100
KV_S, STEP_S, RELAY_S, ITL_S = 0.025, 0.008, 0.0005, 0.010
NEW = 4


class Client:
    """One streamed request; its clock is the gateway's, NET_S away in each direction."""

    def __init__(self, bench: Bench, router: Router) -> None:
        self._clock = bench.clock
        self.sent = bench.clock.now
        bench.clock.advance(NET_S)
        self.answer = Answer()
        self._body = json.dumps(
            {
                "prompt": [5] * 20,
                "max_tokens": NEW,
                "stream": True,
                "return_token_ids": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()
        self._asked = False
        self._threads = ThreadPoolExecutor(1)
        service = Service(
            router,
            served(Tokenizer(byte_level_inner(), bos_token="<s>")),
            FrontendConfig(enable_per_request_metrics=True),
            FrontendMetrics(),
            self._threads,
            clock=bench.clock,
        )
        endpoint = GenerationEndpoint(service, COMPLETION)
        headers = [(b"x-request-id", b"r")]
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers}
        self._task = asyncio.create_task(endpoint(scope, self._receive, self._send))

    async def record(self) -> RequestRecord:
        await self._task
        self._threads.shutdown()
        answer = self.answer
        return RequestRecord(
            request_id="r",
            arm="b",
            run="0",
            intended_s=self.sent,
            sent_s=self.sent,
            first_byte_s=None,
            events=answer.events,
            ended_s=self._clock.now,
            outcome=outcome_of(answer, NEW),
            counting=answer.counting,
            metrics=answer.metrics,
            workers=answer.workers,
        )

    async def _receive(self) -> dict[str, Any]:
        if self._asked:
            await asyncio.Event().wait()
        self._asked = True
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, message: dict[str, Any]) -> None:
        for line in message.get("body", b"").split(b"\n"):
            if line.startswith(b"data: "):
                data = line.removeprefix(b"data: ")
                self.answer.read(SseEvent(self._clock.now + NET_S, data, ""))


def say(worker: ScriptedWorker, name: RequestId, index: int, began: Began | None = None) -> None:
    finish = "length" if index == NEW - 1 else None
    chunk = TokenChunk(name, index, (6 + index,), finish)  # type: ignore[arg-type]
    worker.send(StepTokens((chunk,), () if began is None else (began,)))


async def rest(bench: Bench, client: Client, worker: ScriptedWorker, name: RequestId) -> None:
    """The tokens that come at ITL_S, from the last one that the client has."""
    for index in range(client.answer.tokens, NEW):
        bench.clock.advance(ITL_S)
        say(worker, name, index)
        await until(lambda index=index: client.answer.tokens == index + 1)  # type: ignore[misc]


async def test_the_times_of_a_split_request_come_back_from_the_join(bench: Bench) -> None:
    router, p, d = await bench.split()
    client = Client(bench, router)
    reserve = await d.expect(Reserve)
    bench.clock.advance(GRANT_S)
    d.grant(reserve.handoff)
    prefill = await p.expect(Prefill)
    name = prefill.request.request_id
    bench.clock.advance(QUEUE_S + PREFILL_S + RELAY_S)
    say(p, name, 0, Began(name, QUEUE_S, PREFILL_S))
    await until(lambda: client.answer.tokens == 1)
    p.send(PrefillDone(name, prefill.target.handoff, 4096, QUEUE_S, PREFILL_S, KV_S))
    await until(lambda: len(bench.notes.handoffs) == 1)
    bench.clock.advance(KV_S + STEP_S)
    say(d, name, 1, Began(name, QUEUE_S + PREFILL_S + KV_S, STEP_S))
    await until(lambda: client.answer.tokens == 2)
    await rest(bench, client, d, name)
    record = await client.record()

    expected = {
        Part.LAG: 0.0,
        Part.GATEWAY: 0.0,
        Part.ROOM: 0.0,
        Part.RETRIES: 0.0,
        Part.GRANT: GRANT_S,
        Part.QUEUE: QUEUE_S,
        Part.PREFILL: PREFILL_S,
        Part.RESIDUAL: 2 * NET_S + RELAY_S,
    }
    assert ttft_parts(record) == pytest.approx(expected, abs=1e-5)
    gap = {Part.HANDOFF: KV_S, Part.STEP: STEP_S, Part.RESIDUAL: 0.0}
    assert gap_parts(record) == pytest.approx(gap, abs=1e-5)
    assert handoff_s(record) == pytest.approx(KV_S, abs=1e-5)
    assert unexplained([record]) is None
    told = record.metrics or {}
    assert told["generation_time_ms"] == pytest.approx(1000 * (KV_S + STEP_S + 2 * ITL_S))
    assert told["mean_itl_ms"] == pytest.approx(told["generation_time_ms"] / (NEW - 1), abs=1e-3)
    assert told["tokens_per_second"] == pytest.approx(
        NEW / (PREFILL_S + told["generation_time_ms"] / 1000), abs=1e-3
    )
    assert record.workers == {"prefill_worker": "p0", "decode_worker": "d0"}


async def test_the_times_of_a_whole_request_come_back_from_the_join(bench: Bench) -> None:
    router, c = await bench.colocated()
    client = Client(bench, router)
    name = (await c.expect(Submit)).request.request_id
    bench.clock.advance(QUEUE_S + PREFILL_S + RELAY_S)
    say(c, name, 0, Began(name, QUEUE_S, PREFILL_S))
    await until(lambda: client.answer.tokens == 1)
    await rest(bench, client, c, name)
    record = await client.record()
    expected = {
        Part.LAG: 0.0,
        Part.GATEWAY: 0.0,
        Part.ROOM: 0.0,
        Part.RETRIES: 0.0,
        Part.QUEUE: QUEUE_S,
        Part.PREFILL: PREFILL_S,
        Part.RESIDUAL: 2 * NET_S + RELAY_S,
    }
    assert ttft_parts(record) == pytest.approx(expected, abs=1e-5)
    assert handoff_s(record) is None
    assert record.workers == {"worker": "c0"}


async def test_a_hole_in_the_accounting_is_seen(bench: Bench) -> None:
    router, c = await bench.colocated()
    client = Client(bench, router)
    name = (await c.expect(Submit)).request.request_id
    bench.clock.advance(QUEUE_S + PREFILL_S + 0.02)
    say(c, name, 0, Began(name, QUEUE_S, PREFILL_S))
    await until(lambda: client.answer.tokens == 1)
    await rest(bench, client, c, name)
    assert "22 ms, more than 5 ms" in (unexplained([await client.record()]) or "")
