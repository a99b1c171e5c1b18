"""POST /v1/completions, /v1/chat/completions, /v1/responses: the path of one request.

    1. read the body        body.py
    2. render it            render/pipeline.py, in a thread when it is long
    3. generate             choices.py: one Generator request a choice, all at once
    4. derender             derender/pipeline.py, chunk by chunk
    5. answer               forms.py, sse.py: events as they come, or the folded stream
    6. count the outcome    measures.py

Steps 2 to 5 end at once when the client leaves; closing a choice's iterator aborts it everywhere.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from splitserve.clock import Clock, monotonic
from splitserve.frontend.access import owner_of
from splitserve.frontend.body import ClientGone, read_body
from splitserve.frontend.choices import Choice, Pace, run_choice, run_together
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.derender.answer import usage
from splitserve.frontend.derender.head import Head
from splitserve.frontend.derender.pipeline import Derenderer
from splitserve.frontend.disconnect import until_disconnect
from splitserve.frontend.failures import failure_of
from splitserve.frontend.forms import Emit, Form, Metrics
from splitserve.frontend.measures import FrontendMetrics, Outcome
from splitserve.frontend.model import ServedModel
from splitserve.frontend.render.job import Job
from splitserve.frontend.render.pipeline import Renderer
from splitserve.frontend.request_id import HEADER, LiveIds, asked_id
from splitserve.frontend.request_metrics import request_metrics
from splitserve.frontend.session import session_of
from splitserve.frontend.sse import Response
from splitserve.protocol.course import Course
from splitserve.protocol.generator import Generator

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """What the endpoints share. ``threads`` renders long bodies."""

    generator: Generator
    model: ServedModel
    config: FrontendConfig
    metrics: FrontendMetrics
    threads: Executor
    clock: Clock = monotonic
    live: LiveIds = field(default_factory=LiveIds)


@dataclass(frozen=True, slots=True)
class _Arrival:
    """``at`` is the clock's time; ``owner`` whose key came with the request; ``session`` names what
    it belongs to, see ``session.py``."""

    answer_id: str
    at: float
    owner: str
    session: str


class GenerationEndpoint:
    """One endpoint as an ASGI application."""

    def __init__(self, service: Service, form: Form) -> None:
        self._service = service
        self._form = form
        self._renderer = Renderer(service.model, service.config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        arrived = service.clock()
        asked = asked_id(scope)
        answer_id = service.live.claim(self._form.prefix, asked)
        response = Response(send, [(HEADER, (asked or answer_id).encode())])
        outcome: Outcome = "cancelled"
        try:
            body = await read_body(scope, receive, service.config.max_body_bytes)
            owner = owner_of(scope)
            session = session_of(scope, service.config.session_header, owner)
            arrival = _Arrival(answer_id, arrived, owner, session)
            answering = self._answer(body, arrival, response)
            await until_disconnect(receive, answering, service.live.aborted(answer_id))
            outcome = "ok"
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 - whatever went wrong becomes an answer
            outcome = await _report(response, error, answer_id)
        finally:
            service.live.release(answer_id)
            service.metrics.requests.add(outcome)

    async def _answer(self, body: bytes, arrival: _Arrival, response: Response) -> None:
        job = await self._render(body)
        head = Head(
            arrival.answer_id, self._service.model.name, int(time.time()), job.include_usage
        )
        tokenizer = self._service.model.tokenizer
        page = (self._form.streamed if job.stream else self._form.whole)(tokenizer, head, job)
        choices = self._choices(job, arrival, page.emits)
        generator = self._service.generator
        await run_together([run_choice(generator, choice, response.write) for choice in choices])
        last = page.close(_usage(job, choices), _metrics(arrival, choices))
        if job.stream:
            await response.end(last)
        else:
            await response.whole(200, last, [])

    async def _render(self, body: bytes) -> Job:
        if len(body) <= self._service.config.inline_bytes:
            return self._form.render(self._renderer, body)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._service.threads, self._form.render, self._renderer, body
        )

    def _choices(self, job: Job, arrival: _Arrival, emits: Sequence[Emit]) -> list[Choice]:
        service = self._service
        told = service.config.enable_per_request_metrics and len(emits) == 1
        requests = job.requests(arrival.answer_id, arrival.owner, arrival.session)
        return [
            Choice(
                request,
                Derenderer(
                    service.model.tokenizer,
                    job.options,
                    echo=job.prompt_of(number).echo,
                    context=job.context,
                ),
                Pace(service.metrics, service.clock, arrival.at),
                emit,
                Course() if told else None,
            )
            for number, (request, emit) in enumerate(zip(requests, emits, strict=True))
        ]


def _usage(job: Job, choices: Sequence[Choice]) -> dict[str, Any]:
    """A prompt counts once, however many answers it gets."""
    return usage(
        sum(len(prompt.token_ids) for prompt in job.prompts),
        sum(choice.derenderer.tokens for choice in choices),
        [choice.derenderer.cached_tokens for choice in choices[:: job.n]],
    )


def _metrics(arrival: _Arrival, choices: Sequence[Choice]) -> Metrics | None:
    """None where nobody asks for it, or for several answers: their times are not one request's."""
    choice = choices[0]
    if choice.course is None:
        return None
    return request_metrics(choice.course, arrival.at, choice.pace.last, choice.derenderer.tokens)


async def _report(response: Response, error: Exception, answer_id: str) -> Outcome:
    failure = failure_of(error, answer_id)
    if failure.outcome == "error":
        _log.error("request %s: unexpected error", answer_id, exc_info=error)
    elif failure.outcome == "peer_failed":
        _log.warning("request %s: %s: %s", answer_id, type(error).__name__, error)
    await response.fail(failure)
    return failure.outcome
