"""A whole request at one instance: Submit."""

import msgspec

from splitserve.protocol.control import StepTokens, Submit
from splitserve.protocol.generate import TokenChunk
from splitserve.router.workers.vllm import bodies
from splitserve.router.workers.vllm.answers import AnswerReader, Event, began
from splitserve.router.workers.vllm.desk import Desk
from splitserve.router.workers.vllm.exactness import replayable
from splitserve.router.workers.vllm.failure import LegFailed

NO_REPLAY = LegFailed(
    "no_replay", "vLLM cannot go on in the middle of an answer that is held to a grammar"
)


class WholePart:
    """Streams the answer from where ``emitted`` ends."""

    def __init__(self, desk: Desk, order: Submit) -> None:
        self._desk = desk
        self._request = order.request
        self._emitted = order.emitted
        top = order.request.sampling.logprobs
        self._reader = AnswerReader(order.request.request_id, len(order.emitted), top)
        self._last: TokenChunk | None = None
        self._task = desk.spawn(order.request.request_id, self._run())

    def abort(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        try:
            if self._emitted and not replayable(self._request.sampling):
                raise NO_REPLAY
            asked = bodies.whole(self._request, self._emitted)
            await self._desk.stream(self._request, asked, _nothing, self._take)
            if not self._reader.finished:
                raise LegFailed("engine", "vLLM's answer ended early")
        except LegFailed as failure:
            if not self._reader.finished:
                self._desk.fail(self._request.request_id, failure)
        self._finish(None)

    def _take(self, event: Event) -> None:
        chunk = self._reader.chunk(event)
        if chunk is not None:
            if chunk.finish_reason is None:
                self._desk.tell(StepTokens((chunk,)))
            else:
                self._last = chunk
        elif event.usage is not None:
            self._finish(event)

    def _finish(self, event: Event | None) -> None:
        """The last chunk waits for what vLLM sends right behind it: how much was cached, and how
        long it took."""
        chunk, self._last = self._last, None
        if chunk is not None:
            cached_tokens = None if event is None else event.cached_tokens
            if cached_tokens is not None and not self._emitted:
                chunk = msgspec.structs.replace(chunk, cached_tokens=cached_tokens)
            self._desk.tell(StepTokens((chunk,), (began(self._request.request_id, event),)))
            self._desk.end(self._request.request_id)


def _nothing() -> None:
    pass
