"""The endpoint without a server: what it does when its client or its task goes."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from frontend.scripted import Gate, ScriptedGenerator, Step, chunks
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.forms import COMPLETION
from splitserve.frontend.generation import GenerationEndpoint, Service
from splitserve.frontend.measures import FrontendMetrics
from splitserve.frontend.model import ServedModel
from splitserve.protocol.generate import GenerateRequest


class Caller:
    """One HTTP exchange as ASGI messages. ``leave`` is the client's end of it."""

    def __init__(self, **fields: Any) -> None:
        body = json.dumps({"prompt": "x", **fields}).encode()
        self.scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
        self.sent: list[dict[str, Any]] = []
        self.leave = asyncio.Event()
        self._incoming = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive(self) -> dict[str, Any]:
        if self._incoming:
            return self._incoming.pop()
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


class Setting:
    def __init__(self, model: ServedModel, *, finish: bool) -> None:
        self.reached: asyncio.Event = asyncio.Event()
        self.generator = ScriptedGenerator(self._script)
        self.metrics = FrontendMetrics()
        self._finish = finish
        threads = ThreadPoolExecutor(1)
        self.service = Service(self.generator, model, FrontendConfig(), self.metrics, threads)
        self.endpoint = GenerationEndpoint(self.service, COMPLETION)

    def _script(self, request: GenerateRequest) -> Iterator[Step]:
        if self._finish:
            yield from chunks([5, 6])
            return
        self.reached.set()
        yield Gate()

    def outcomes(self) -> dict[str, float]:
        found = {name: self.metrics.requests.value(name) for name in ("ok", "cancelled", "error")}
        return {name: value for name, value in found.items() if value}

    async def run(self, caller: Caller) -> None:
        await self.endpoint(caller.scope, caller.receive, caller.send)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_is_not_answered(model: ServedModel, stream: bool) -> None:
    setting, caller = Setting(model, finish=False), Caller(stream=stream, n=2)
    running = asyncio.create_task(setting.run(caller))
    await setting.reached.wait()
    caller.leave.set()
    await running
    assert [setting.generator.ended.get_nowait()[1] for _ in range(2)] == ["closed", "closed"]
    assert caller.sent == []
    assert setting.outcomes() == {"cancelled": 1}


async def test_a_cancelled_request_closes_its_iterators(model: ServedModel) -> None:
    setting, caller = Setting(model, finish=False), Caller(n=2)
    running = asyncio.create_task(setting.run(caller))
    await setting.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [setting.generator.ended.get_nowait()[1] for _ in range(2)] == ["closed", "closed"]
    assert setting.outcomes() == {"cancelled": 1}


async def test_no_task_is_left_behind(model: ServedModel) -> None:
    setting, caller = Setting(model, finish=True), Caller(stream=True, n=2)
    before = asyncio.all_tasks()
    await setting.run(caller)
    assert asyncio.all_tasks() == before
    assert setting.outcomes() == {"ok": 1}
    assert caller.sent[-1]["body"] == b"data: [DONE]\n\n"
    assert [message["more_body"] for message in caller.sent[1:]][-1] is False


async def test_a_client_that_leaves_within_its_body_is_not_answered(model: ServedModel) -> None:
    setting, caller = Setting(model, finish=True), Caller()
    caller._incoming = [{"type": "http.request", "body": b"{", "more_body": True}]
    caller.leave.set()
    await setting.run(caller)
    assert caller.sent == []
    assert setting.outcomes() == {"cancelled": 1}
    assert setting.generator.requests == []
