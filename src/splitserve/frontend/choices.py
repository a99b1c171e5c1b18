"""Runs the choices of one request: chunks of tokens in, deltas out, all choices at once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from splitserve.clock import Clock
from splitserve.errors import PeerError
from splitserve.frontend.derender.pipeline import Derenderer
from splitserve.frontend.forms import Emit
from splitserve.frontend.measures import FrontendMetrics
from splitserve.protocol.course import Course
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.generator import Generator

Write = Callable[[bytes], Awaitable[None]]


class Pace:
    """Times one choice's chunks. ``started`` is the request's arrival; ``last`` is when the newest
    chunk came, on the same clock."""

    __slots__ = ("_clock", "_gaps", "_times", "last")

    def __init__(self, metrics: FrontendMetrics, clock: Clock, started: float) -> None:
        self._clock = clock
        self.last = started
        self._times = metrics.ttft
        self._gaps = metrics.itl

    def chunk(self) -> None:
        now = self._clock()
        self._times.observe(now - self.last)
        self.last = now
        self._times = self._gaps


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a request's answers, while it is made. ``course`` None: nobody asks for it."""

    request: GenerateRequest
    derenderer: Derenderer
    pace: Pace
    emit: Emit
    course: Course | None = None


async def run_choice(generator: Generator, choice: Choice, write: Write) -> None:
    """Makes one answer: each delta goes through ``emit`` and what comes of it to ``write``.

    Leaving early, by an error or because this task is cancelled, closes the generator's iterator,
    which aborts the request everywhere. Raises what the generator raises, and PeerError when the
    answer has no end.
    """
    derenderer, pace, emit = choice.derenderer, choice.pace, choice.emit
    chunks = generator.generate(choice.request, choice.course)
    events = b""
    async with aclosing(chunks):
        async for chunk in chunks:
            pace.chunk()
            events = emit(derenderer.feed(chunk))
            # The worker goes on after a stop string: it is aborted before the client is told.
            if derenderer.finish is not None and derenderer.stopped_by_text:
                break
            if events:
                await write(events)
    if derenderer.finish is None:
        raise PeerError("the worker ended the answer without saying why")
    if derenderer.stopped_by_text and events:
        await write(events)


async def run_together(runs: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs all; the first error cancels the others, waits for their ends and is raised.

    Even one run gets a task of its own: a token then wakes nothing between the loop and the run.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for run in runs:
                group.create_task(run)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
