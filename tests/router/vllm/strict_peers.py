"""A prefill and a decode instance as vLLM 0.32 shows them over HTTP, and stricter.

    async with strict_pair(PullRules(), max_tokens=8) as pair:
        dialect = dialect_for(pair.config)
        ...                       # POST to pair.prefill.url and pair.decode.url
    assert pair.violations == []  # raised at the end of the block too, unless expect_violations

Whatever vLLM would crash on, hang on, ignore or read wrongly is answered with 500 and noted as a
violation: a wrong, missing or unexpected field or header, the wrong order, another prompt. Output
token number ``i`` is ``token_at(i)``, whoever answers.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from aiohttp import web

from router.vllm.peer_bodies import (
    MODEL,
    Seen,
    Violation,
    answer,
    chunks,
    read_request,
    require,
    token_at,
)
from splitserve.router.workers.vllm.dialects.base import Instance

BLOCK: Final = 16
ARRIVAL_S: Final = 5.0
"""How long decode waits for KV that prefill was never asked for, before it is a violation."""


@dataclass
class Handed:
    """What both instances know of one handoff."""

    prefill: Seen | None = None
    returned: dict[str, Any] | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    read: bool = False
    agreed: dict[str, Any] = field(default_factory=dict)

    def agree(self, key: str, value: Any) -> None:
        """Both legs must say the same."""
        first = self.agreed.setdefault(key, value)
        require(first == value, f"{key} is {value!r} in one leg and {first!r} in the other")

    @property
    def blocks(self) -> int | None:
        """How many blocks prefill keeps for decode; None when it said nothing."""
        groups = (self.returned or {}).get("remote_block_ids")
        return None if groups is None else len(groups[0])


class Rules(Protocol):
    """What one connector family wants. Methods raise Violation."""

    config: dict[str, Any]
    concurrent: bool
    prefill_facts: dict[str, Any]
    decode_facts: dict[str, Any]

    def prefill(self, seen: Seen, handed: Handed) -> dict[str, Any] | None:
        """What prefill returns."""
        ...

    def decode(self, seen: Seen, handed: Handed) -> None: ...


class StrictPeer:
    """One instance. ``gate`` closed (``clear``) holds every answer and every token back;
    ``failing`` are statuses for the next generation requests; ``break_after`` cuts a stream.
    ``arrived`` and ``left`` are set by the first request and the first that was given up."""

    def __init__(self, pair: "StrictPair", part: str) -> None:
        self.part = part
        self.url = ""
        self.violations: list[str] = []
        self.requests: list[Seen] = []
        self.aborted: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrived = asyncio.Event()
        self.left = asyncio.Event()
        self.failing: deque[int] = deque()
        self.break_after: int | None = None
        self.scale_out = True
        self.max_model_len = 4096
        self._pair = pair
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/completions", self._generate)
        app.router.add_post("/inference/v1/generate", self._generate)
        app.router.add_post("/inference/v1/abort_requests", self._abort)
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_route("*", "/{path:.*}", self._unknown)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        self.url = await serve(self._runner)

    async def stop(self) -> None:
        if self._runner is not None:
            self.gate.set()
            await self._runner.cleanup()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/inference") and not self.scale_out:
            return _error(403, "start with --enable-scale-out", "PermissionDeniedError")
        if await request.read() == b"{}":
            # A probe of whether the endpoint is there: pydantic refuses it.
            return _error(400, "field required", "BadRequestError")
        try:
            seen = await read_request(request, self.part)
            self.requests.append(seen)
            self.arrived.set()
            if self.failing:
                return _error(self.failing.popleft(), "asked to fail", "InternalServerError")
            return await self._followed(request, seen)
        except Violation as violation:
            self.violations.append(f"{self.part}: {violation}")
            return _error(500, str(violation), "InternalServerError")

    async def _followed(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        """The answer, given up when the client goes or aborts."""
        task = asyncio.current_task()
        assert task is not None
        self._running[seen.request_id] = task
        try:
            if self.part == "prefill":
                return await self._prefill(seen)
            return await self._decode(request, seen)
        except asyncio.CancelledError:
            self.aborted.append(seen.request_id)
            self.left.set()
            raise
        finally:
            self._running.pop(seen.request_id, None)

    async def _prefill(self, seen: Seen) -> web.Response:
        handed = self._pair.handed.setdefault(seen.request_id, Handed())
        require(handed.prefill is None, f"X-Request-Id {seen.request_id} was used before")
        handed.prefill = seen
        returned = self._pair.rules.prefill(seen, handed)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            del self._pair.handed[seen.request_id]
            raise
        handed.returned = returned
        handed.answered.set()
        return web.json_response(answer(seen, [token_at(0)], returned))

    async def _decode(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        handed = self._pair.admit(seen)
        if len(seen.prompt) + seen.max_tokens > self.max_model_len:
            # The cleanup of refused requests wraps completions, not generate.
            handed.read = handed.read or request.path == "/v1/completions"
            return _error(400, "longer than the model takes", "BadRequestError")
        if seen.params is not None:
            await _arrival(handed)
        first = len(seen.prompt) - len(handed.prefill.prompt if handed.prefill else seen.prompt)
        tokens = [token_at(first + i) for i in range(seen.max_tokens)]
        if not seen.stream:
            await self.gate.wait()
            return web.json_response(answer(seen, tokens, None))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for sent, chunk in enumerate(chunks(seen, tokens)):
            await self.gate.wait()
            if sent == self.break_after and request.transport is not None:
                request.transport.abort()
            await response.write(chunk)
        return response

    async def _abort(self, request: web.Request) -> web.Response:
        body = await request.json()
        for request_id in body["request_ids"]:
            if request_id in self._running:
                self._running[request_id].cancel()
        return web.Response()

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": self._pair.version})

    async def _models(self, request: web.Request) -> web.Response:
        card = {"id": MODEL, "object": "model", "max_model_len": self.max_model_len}
        return web.json_response({"object": "list", "data": [card]})

    async def _metrics(self, request: web.Request) -> web.Response:
        labels = f'{{engine="0",model_name="{MODEL}"}}'
        values = {
            "vllm:num_requests_running": len(self._running),
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": 0.25,
        }
        lines = [f"# TYPE {n} gauge\n{n}{labels} {float(v)}\n" for n, v in values.items()]
        return web.Response(text="".join(lines))

    async def _unknown(self, request: web.Request) -> web.Response:
        self.violations.append(f"{self.part}: vLLM has no {request.method} {request.path}")
        return _error(404, "Not Found", "NotFoundError")


class StrictPair:
    """A prefill and a decode instance with one connector."""

    def __init__(self, rules: Rules, max_tokens: int | None, version: str) -> None:
        self.rules = rules
        self.version = version
        self.max_tokens = max_tokens
        self.handed: dict[str, Handed] = {}
        self.prefill = StrictPeer(self, "prefill")
        self.decode = StrictPeer(self, "decode")

    @property
    def config(self) -> dict[str, Any]:
        """--kv-transfer-config of both."""
        return self.rules.config

    @property
    def violations(self) -> list[str]:
        return self.prefill.violations + self.decode.violations

    @property
    def held(self) -> set[str]:
        """Request ids whose blocks prefill still keeps for a decode that has not come."""
        return {name for name, handed in self.handed.items() if handed.blocks and not handed.read}

    @property
    def prefill_instance(self) -> Instance:
        return Instance(self.prefill.url, self.rules.prefill_facts)

    @property
    def decode_instance(self) -> Instance:
        return Instance(self.decode.url, self.rules.decode_facts)

    def admit(self, seen: Seen) -> Handed:
        """Checks a decode leg, which has prefill's request id. One with another id and prefill's
        answer only frees the blocks; one without params computes its prompt itself."""
        own = self._owner(seen)
        handed = self.handed.get(own) or Handed()
        asked = handed.prefill is not None
        if not self.rules.concurrent and (asked or seen.params is not None):
            require(handed.answered.is_set(), "decode was asked before prefill answered")
        if seen.params is None and not asked:
            return handed
        self.handed[own] = handed
        self.rules.decode(seen, handed)
        if seen.params is not None:
            require(not handed.read, "the same params were used twice")
        if own == seen.request_id and handed.prefill is not None:
            self._same_work(seen, handed.prefill)
        if handed.blocks is not None:
            require(-(-len(seen.prompt) // BLOCK) <= handed.blocks, "decode needs more blocks")
        handed.read = True
        return handed

    def _owner(self, seen: Seen) -> str:
        """The handoff that a request is about, by its id or by the answer that it carries."""
        if seen.request_id in self.handed or not seen.request_id.endswith("-release"):
            return seen.request_id
        for name, handed in self.handed.items():
            for key in ("remote_request_id", "transfer_id"):
                told = (seen.params or {}).get(key)
                if told is not None and told == (handed.returned or {}).get(key):
                    return name
        raise Violation("frees what nobody holds")

    def _same_work(self, seen: Seen, prefill: Seen) -> None:
        extra = seen.prompt[len(prefill.prompt) :]
        require(seen.prompt[: len(prefill.prompt)] == prefill.prompt, "another prompt")
        require(extra == [token_at(i) for i in range(len(extra))], "tokens prefill did not give")
        if self.max_tokens is not None:
            want = max(1, self.max_tokens - len(extra))
            require(seen.max_tokens == want, f"max_tokens {seen.max_tokens} is not {want}")


@asynccontextmanager
async def strict_pair(
    rules: Rules,
    *,
    max_tokens: int | None = None,
    version: str = "0.32.0",
    expect_violations: bool = False,
) -> AsyncIterator[StrictPair]:
    """Runs a pair. ``max_tokens`` is what the client asked for, None leaves it unchecked."""
    pair = StrictPair(rules, max_tokens, version)
    await pair.prefill.start()
    await pair.decode.start()
    try:
        yield pair
    finally:
        await pair.prefill.stop()
        await pair.decode.stop()
    assert expect_violations or pair.violations == [], pair.violations


async def serve(runner: web.AppRunner) -> str:
    """Serves on a free port of this machine; the url."""
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    return f"http://{host}:{port}"


async def _arrival(handed: Handed) -> None:
    try:
        async with asyncio.timeout(ARRIVAL_S):
            await handed.answered.wait()
    except TimeoutError:
        raise Violation("decode waits for KV that nobody computes") from None


def _error(status: int, message: str, kind: str) -> web.Response:
    body = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    return web.json_response(body, status=status)
