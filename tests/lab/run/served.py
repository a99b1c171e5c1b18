"""A server that answers like a split or single deployment, in the test's own process."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

GAP_S = 0.002


class Served:
    """``asked`` are the bodies of all completions; ``after`` is called with their number."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.after: Callable[[int], None] = lambda number: None
        self.url = ""
        self.version = "1.0"
        self.model = "tiny"
        self._runner: web.AppRunner | None = None

    @property
    def prompts(self) -> list[list[int]]:
        return [list(body["prompt"]) for body in self.asked]

    async def start(self, port: int = 0) -> None:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/version", self._version)
        app.router.add_post("/v1/completions", self._complete)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": self.model, "max_model_len": 4096}]})

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self.version})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.after(len(self.asked))
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        count = body["max_tokens"]
        for at in range(count):
            finish = "length" if at == count - 1 else None
            choice = {"index": 0, "text": "a", "finish_reason": finish, "token_ids": [at]}
            await answer.write(_event({"id": "c", "choices": [choice]}))
            await asyncio.sleep(GAP_S)
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": count}
        await answer.write(_event({"id": "c", "choices": [], "usage": usage}))
        await answer.write(b"data: [DONE]\n\n")
        return answer


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    server = Served()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
