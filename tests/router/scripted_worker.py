"""A worker whose every word is the test's, speaking real frames over a real Unix socket."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from splitserve.errors import ProtocolMismatch
from splitserve.ids import HandoffId, Incarnation, RequestId, WorkerId
from splitserve.protocol.codec import FrameDecoder, Message, encode
from splitserve.protocol.control import Abort, Failed, Hello, StepTokens, Submit, Welcome
from splitserve.protocol.generate import FinishReason, GenerateRequest, TokenChunk
from splitserve.protocol.handoff import (
    Grant,
    GrantTarget,
    Prefill,
    PrefillDone,
    Refuse,
    Reserve,
)
from splitserve.protocol.sampling import SamplingParams
from splitserve.protocol.telemetry import KVCounts, Load

M = TypeVar("M")
BLOCK = 16


def prompt(
    name: str, *, tokens: int = 20, max_tokens: int = 8, logprobs: int | None = None
) -> GenerateRequest:
    sampling = SamplingParams(seed=7, max_tokens=max_tokens, logprobs=logprobs)
    return GenerateRequest(RequestId(name), tuple(range(1, tokens + 1)), sampling)


def token_at(index: int) -> int:
    """What every scripted worker answers at an output position."""
    return 1000 + index


def chunk_of(
    request_id: str,
    index: int,
    n: int = 1,
    *,
    finish: FinishReason | None = None,
    cached: int | None = None,
) -> TokenChunk:
    tokens = tuple(token_at(index + i) for i in range(n))
    return TokenChunk(RequestId(request_id), index, tokens, finish, None, None, cached)


def load_of(*, free: int = 1000, used: int = 0, **changes: object) -> Load:
    values: dict[str, object] = {
        "running": 0,
        "waiting": 0,
        "waiting_tokens": 0,
        "steps": 0,
        "preemptions": 0,
        "prefix_hit_tokens": 0,
        "prefix_query_tokens": 0,
    }
    return Load(kv=KVCounts(free, 0, used, 0, 0, 0), **(values | changes))  # type: ignore[arg-type]


class ScriptedWorker:
    """Says Welcome and one Load by itself; ``on_order`` may answer the rest as it comes."""

    def __init__(
        self,
        folder: Path,
        name: str,
        role: str,
        *,
        linked: tuple[str, ...] = (),
        free: int = 1000,
        incarnation: str = "life-1",
        fingerprint: dict[str, str] | None = None,
        connector: str = "shm",
        max_model_len: int = 100_000,
        on_order: "Callable[[ScriptedWorker, Message], None] | None" = None,
    ) -> None:
        self.name = WorkerId(name)
        self.role = role
        self.address = f"unix:{folder / name}.sock"
        self.linked = linked
        self.free = free
        self.incarnation = incarnation
        self.fingerprint = fingerprint or {}
        self.connector = connector
        self.max_model_len = max_model_len
        self.on_order = on_order
        self.received: list[Message] = []
        self._path = folder / f"{name}.sock"
        self._news = asyncio.Event()
        self._wires: set[_Wire] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> "ScriptedWorker":
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Wire(self), str(self._path))
        return self

    async def stop(self) -> None:
        """As a killed process: every connection ends, nobody listens."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for wire in list(self._wires):
            wire.transport.abort()
        self._path.unlink(missing_ok=True)

    def hang_up(self) -> None:
        """Ends the connections and goes on listening."""
        for wire in list(self._wires):
            wire.transport.abort()

    def send(self, message: Message) -> None:
        for wire in self._wires:
            wire.transport.write(encode(message))

    def send_bytes(self, data: bytes) -> None:
        for wire in self._wires:
            wire.transport.write(data)

    def welcome(self) -> Welcome:
        return Welcome(
            worker=self.name,
            incarnation=Incarnation(self.incarnation),
            role=self.role,
            address=f"unix:/links/{self.name}",
            pid=1,
            model="m",
            connector=self.connector,
            max_model_len=self.max_model_len,
            vocab_size=2000,
            block_size=BLOCK,
            kv_token_bytes=64,
            fingerprint=self.fingerprint,
        )

    def report(self, **changes: object) -> None:
        self.send(load_of(**({"free": self.free, "linked": self.linked} | changes)))

    def tokens(self, *chunks: TokenChunk) -> None:
        self.send(StepTokens(chunks))

    def grant(self, handoff: HandoffId) -> None:
        self.send(Grant(GrantTarget(handoff, 1, self.name, "link", 0, (1, 2)), 0))

    def refuse(self, handoff: HandoffId, code: str, *, retryable: bool = True) -> None:
        self.send(Refuse(handoff, code, f"refused: {code}", retryable))

    def fail(self, request_id: RequestId, code: str) -> None:
        self.send(Failed(request_id, code, f"failed: {code}"))

    def done(self, request_id: RequestId, handoff: HandoffId) -> None:
        self.send(PrefillDone(request_id, handoff, 4096, 0.25, 0.5, 0.125))

    async def expect(self, kind: type[M], nth: int = 0) -> M:
        """The ``nth`` message of that kind, waited for."""
        while len(found := self.all(kind)) <= nth:
            self._news.clear()
            await self._news.wait()
        return found[nth]

    def all(self, kind: type[M]) -> list[M]:
        return [message for message in self.received if isinstance(message, kind)]

    def aborted(self) -> list[str]:
        return [message.request_id for message in self.all(Abort)]

    # From the wire

    def connected(self, wire: "_Wire") -> None:
        self._wires.add(wire)

    def disconnected(self, wire: "_Wire") -> None:
        self._wires.discard(wire)

    def heard(self, message: Message) -> None:
        self.received.append(message)
        if isinstance(message, Hello):
            self.send(self.welcome())
            self.report()
        elif self.on_order is not None:
            self.on_order(self, message)
        self._news.set()


class _Wire(asyncio.Protocol):
    def __init__(self, worker: ScriptedWorker) -> None:
        self._worker = worker
        self._decoder = FrameDecoder()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._worker.connected(self)

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._decoder.feed(data)
        except ProtocolMismatch:
            self.transport.abort()
            raise
        for message in messages:
            self._worker.heard(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._worker.disconnected(self)


def answer_whole(worker: ScriptedWorker, message: Message) -> None:
    """A colocated worker that answers every Submit at once, a step for each token."""
    if isinstance(message, Submit):
        start, end = len(message.emitted), message.request.sampling.max_tokens
        for index in range(start, end):
            last = index == end - 1
            worker.tokens(
                chunk_of(
                    message.request.request_id,
                    index,
                    finish="length" if last else None,
                    cached=0 if index == start else None,
                )
            )
        worker.report()


def grant_always(worker: ScriptedWorker, message: Message) -> None:
    """A decode worker that has room for everything, and answers Submit as a whole one does."""
    if isinstance(message, Reserve):
        worker.grant(message.handoff)
        worker.report()
    else:
        answer_whole(worker, message)


def prefill_into(decode: ScriptedWorker) -> Callable[[ScriptedWorker, Message], None]:
    """A prefill worker whose decode worker goes on at once after the first token."""

    def on_order(worker: ScriptedWorker, message: Message) -> None:
        if not isinstance(message, Prefill):
            return
        name, end = message.request.request_id, message.request.sampling.max_tokens
        worker.tokens(chunk_of(name, 0, finish="length" if end == 1 else None, cached=0))
        worker.done(name, message.target.handoff)
        for index in range(1, end):
            decode.tokens(chunk_of(name, index, finish="length" if index == end - 1 else None))

    return on_order
