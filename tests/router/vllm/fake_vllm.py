"""A vLLM instance whose every answer is the test's, over real HTTP.

The token at a place of a sequence depends on the place alone: prefill, decode and a replay agree
unless a test makes them differ.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

METRICS = """\
# HELP process_start_time_seconds Start time
process_start_time_seconds {started}
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
vllm:num_requests_waiting{{engine="0",model_name="m"}} 0.0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {usage}
vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="1000"}} 1.0
vllm:iteration_tokens_total_count{{engine="0",model_name="m"}} 7.0
vllm:nixl_num_failed_transfers_total{{engine="0",model_name="m"}} {failed}
"""


def token_after(tokens: int) -> int:
    """What follows a sequence of so many tokens."""
    return 1000 + tokens


@dataclass
class Behavior:
    """``hold``: before it begins to answer. ``pause``: after it began, before the first token.
    ``tail``: before the last token. ``cut``: hangs up after so many tokens."""

    status: int = 200
    params: dict[str, Any] | None = None
    first: int | None = None
    hold: asyncio.Event | None = None
    pause: asyncio.Event | None = None
    tail: asyncio.Event | None = None
    cut: int | None = None
    finish: str = "length"
    error: str = ""
    cached: int | None = None
    tokens: int | None = None
    metrics: dict[str, float] | None = None


@dataclass
class Call:
    path: str
    body: dict[str, Any]
    headers: Mapping[str, str]
    gone: bool = False
    ended: bool = False

    @property
    def sampling(self) -> dict[str, Any]:
        return self.body.get("sampling_params", self.body)

    @property
    def prompt(self) -> list[int]:
        return self.body.get("token_ids") or self.body["prompt"]

    @property
    def params(self) -> dict[str, Any] | None:
        return self.body.get("kv_transfer_params")

    @property
    def streams(self) -> bool:
        return self.body["stream"]


@dataclass
class FakeVllm:
    generate: bool = True
    version: str = "0.32.0"
    behave: Callable[[Call], Behavior] = lambda call: Behavior()
    healthy: bool = True
    usage: float = 0.0
    failed_transfers: float = 0.0
    started: float = 1.0
    shake: Callable[[Call], Behavior] = lambda call: Behavior(params={"blocks": [0]})
    handshakes: list[Call] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    port: int = 0
    _runner: web.AppRunner | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> "FakeVllm":
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/completions", self._answer)
        app.router.add_post("/inference/v1/generate", self._generate)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        """As a killed process: whatever runs is cut off, nobody listens."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def call(self, nth: int = 0) -> Call:
        """The ``nth`` request for tokens, waited for."""
        await self.see(lambda: len(self.calls) > nth)
        return self.calls[nth]

    async def see(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 503)

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": self.version})

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": "m", "root": "/models/m", "max_model_len": 4096}
        return web.json_response({"object": "list", "data": [model]})

    async def _metrics(self, request: web.Request) -> web.Response:
        page = METRICS.format(
            started=self.started, running=0.0, usage=self.usage, failed=self.failed_transfers
        )
        return web.Response(text=page)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not self.generate:
            return web.json_response({"error": {"message": "disabled"}}, status=403)
        if not body:
            return web.json_response({"error": {"message": "Field required"}}, status=400)
        return await self._answer(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        call = Call(request.path, await request.json(), request.headers)
        if call.headers["X-Request-Id"].startswith("handshake"):
            self.handshakes.append(call)
            return await self._behaved(request, call, self.shake(call))
        self.calls.append(call)
        self._news.set()
        try:
            answer = await self._behaved(request, call, self.behave(call))
        except (asyncio.CancelledError, ConnectionError):
            call.gone = True
            raise
        finally:
            call.ended = True
            self._news.set()
        return answer

    async def _behaved(
        self, request: web.Request, call: Call, behavior: Behavior
    ) -> web.StreamResponse:
        if behavior.hold is not None:
            await behavior.hold.wait()
        if behavior.status != 200:
            error = {"message": behavior.error or "it broke", "code": behavior.status}
            return web.json_response({"error": error}, status=behavior.status)
        tokens = self._tokens(call, behavior)
        if not call.streams:
            return web.json_response(
                {
                    "choices": [_choice(tokens, behavior.finish)],
                    "usage": _usage(behavior),
                    "kv_transfer_params": behavior.params,
                    "metrics": behavior.metrics,
                }
            )
        return await self._stream(request, tokens, behavior)

    def _tokens(self, call: Call, behavior: Behavior) -> list[int]:
        count = call.sampling["max_tokens"] if behavior.tokens is None else behavior.tokens
        tokens = [token_after(len(call.prompt) + i) for i in range(count)]
        if behavior.first is not None:
            tokens[0] = behavior.first
        return tokens

    async def _stream(
        self, request: web.Request, tokens: list[int], behavior: Behavior
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if behavior.pause is not None:
            await behavior.pause.wait()
        for i, token in enumerate(tokens):
            last = i == len(tokens) - 1
            if last and behavior.tail is not None:
                await behavior.tail.wait()
            if behavior.cut == i:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(
                _event({"choices": [_choice([token], behavior.finish if last else None)]})
            )
        if behavior.error:
            await response.write(_event({"error": {"message": behavior.error, "code": 500}}))
        last = {"choices": [], "usage": _usage(behavior), "metrics": behavior.metrics}
        await response.write(_event(last))
        await response.write(b"data: [DONE]\n\n")
        return response


def _choice(tokens: list[int], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "token_ids": tokens, "finish_reason": finish, "stop_reason": None}


def _usage(behavior: Behavior) -> dict[str, Any]:
    details = None if behavior.cached is None else {"cached_tokens": behavior.cached}
    return {"prompt_tokens": 1, "prompt_tokens_details": details}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
