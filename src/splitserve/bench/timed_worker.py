"""A worker without an engine that notes when each token left it.

Speaks the real worker protocol, so that what lies between its note and the client's is the gateway
and nothing else. Both notes are of one host's monotonic clock.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from splitserve.clock import monotonic
from splitserve.ids import Incarnation, RequestId, WorkerId
from splitserve.protocol.codec import Message, encode
from splitserve.protocol.connection import Connection
from splitserve.protocol.control import Abort, Hello, StepTokens, Submit, Welcome
from splitserve.protocol.generate import TokenChunk
from splitserve.protocol.telemetry import KVCounts, Load

LOAD_EVERY_S: Final = 0.1
_BLOCK_SIZE: Final = 16


@dataclass(slots=True)
class _Stream:
    request_id: RequestId
    total: int
    sent: int = 0


@dataclass(slots=True)
class TimedWorker:
    """Steps every ``step_s`` seconds: one token for every stream, in one frame per gateway.

    ``token_ids`` are sent in turn. ``left[i]`` lists, per prompt marker ``i`` (the first id of the
    request's prompt), when each of its tokens left.
    """

    token_ids: Sequence[int]
    step_s: float
    fingerprint: dict[str, str]
    vocab_size: int
    left: dict[int, list[float]] = field(default_factory=dict)
    _streams: dict[Connection, dict[RequestId, tuple[int, _Stream]]] = field(default_factory=dict)
    _steps: int = 0

    async def serve(self, path: str) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: Connection("gateway", self), path)
        try:
            await self._step_for_ever()
        finally:
            server.close()

    def made(self, connection: Connection) -> None:
        self._streams[connection] = {}

    def lost(self, connection: Connection, reason: str) -> None:
        del reason
        self._streams.pop(connection, None)

    def received(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            self._take(connection, message)

    def _take(self, connection: Connection, message: Message) -> None:
        match message:
            case Hello():
                connection.write(encode(self._welcome()))
                connection.write(encode(self._load()))
            case Submit(request=request):
                stream = _Stream(request.request_id, request.sampling.max_tokens)
                self._streams[connection][request.request_id] = (request.token_ids[0], stream)
            case Abort(request_id=request_id):
                self._streams[connection].pop(request_id, None)
            case _:
                pass

    async def _step_for_ever(self) -> None:
        due = load_due = monotonic()
        while True:
            due += self.step_s
            await asyncio.sleep(max(0.0, due - monotonic()))
            for connection in self._streams:
                self._step(connection)
            if monotonic() >= load_due:
                load_due += LOAD_EVERY_S
                for connection in self._streams:
                    connection.write(encode(self._load()))

    def _step(self, connection: Connection) -> None:
        streams = self._streams[connection]
        if not streams:
            return
        self._steps += 1
        chunks = [self._next(stream) for _, stream in streams.values()]
        frame = encode(StepTokens(tuple(chunks)))
        now = monotonic()
        for marker, _ in streams.values():
            self.left.setdefault(marker, []).append(now)
        connection.write(frame)
        for request_id in [r for r, (_, s) in streams.items() if s.sent == s.total]:
            del streams[request_id]

    def _next(self, stream: _Stream) -> TokenChunk:
        index = stream.sent
        stream.sent += 1
        return TokenChunk(
            stream.request_id,
            index,
            (self.token_ids[index % len(self.token_ids)],),
            "length" if stream.sent == stream.total else None,
            cached_tokens=0 if index == 0 else None,
        )

    def _welcome(self) -> Welcome:
        return Welcome(
            worker=WorkerId("timed"),
            incarnation=Incarnation("1"),
            role="colocated",
            address="",
            pid=os.getpid(),
            model="timed",
            connector="none",
            max_model_len=1 << 20,
            vocab_size=self.vocab_size,
            block_size=_BLOCK_SIZE,
            kv_token_bytes=0,
            fingerprint=self.fingerprint,
        )

    def _load(self) -> Load:
        running = sum(len(streams) for streams in self._streams.values())
        free = 1 << 20
        return Load(KVCounts(free, 0, 0, 0, 0, 0), running, 0, 0, self._steps, 0, 0, 0)
