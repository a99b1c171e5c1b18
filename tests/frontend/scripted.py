"""A Generator that does as it is told, and the chunks to tell it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

from splitserve.ids import RequestId
from splitserve.protocol.course import Course
from splitserve.protocol.generate import (
    FinishReason,
    GenerateRequest,
    TokenChunk,
    TokenLogprob,
)

Gate = Future[None]
"""A step that waits until the test sets its result."""

Step = TokenChunk | Exception | Gate
Script = Callable[[GenerateRequest], Iterable[Step]]


class ScriptedGenerator:
    """Runs ``script`` for each request and notes how each ended.

    ``ended`` gets ``(request id, "complete" | "closed" | "failed")``.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[GenerateRequest] = []
        self.courses: list[Course | None] = []
        self.ended: SimpleQueue[tuple[str, str]] = SimpleQueue()

    async def generate(
        self, request: GenerateRequest, course: Course | None = None
    ) -> AsyncGenerator[TokenChunk]:
        self.courses.append(course)
        self.requests.append(request)
        how = "closed"
        try:
            for step in self.script(request):
                if isinstance(step, Exception):
                    how = "failed"
                    raise step
                if isinstance(step, Future):
                    await asyncio.wrap_future(step)
                else:
                    # As tokens do in earnest: they come one after the other.
                    await asyncio.sleep(0)
                    yield step
            how = "complete"
        finally:
            self.ended.put((request.request_id, how))


def chunks(
    token_ids: Sequence[int],
    *,
    sizes: Sequence[int] = (),
    finish: FinishReason | None = "length",
    stop_reason: int | None = None,
    logprobs: Sequence[TokenLogprob] | None = None,
    cached_tokens: int | None = None,
    request_id: str = "r",
) -> Iterator[TokenChunk]:
    """``token_ids`` cut into pieces of ``sizes``, then of one token; the last one finishes."""
    widths = iter(sizes)
    begin = 0
    while begin < len(token_ids):
        end = begin + next(widths, 1)
        last = end >= len(token_ids)
        yield TokenChunk(
            request_id=RequestId(request_id),
            index=begin,
            token_ids=tuple(token_ids[begin:end]),
            finish_reason=finish if last else None,
            stop_reason=stop_reason if last else None,
            logprobs=None if logprobs is None else tuple(logprobs[begin:end]),
            cached_tokens=cached_tokens if begin == 0 else None,
        )
        begin = end


def saying(token_ids: Sequence[int], finish: FinishReason = "length") -> Script:
    """The same answer to everybody, within the request's max_tokens."""

    def script(request: GenerateRequest) -> Iterator[Step]:
        yield from chunks(
            token_ids[: request.sampling.max_tokens],
            finish=finish,
            request_id=request.request_id,
            cached_tokens=0,
        )

    return script
