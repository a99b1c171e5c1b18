"""Loads on an OpenAI-compatible endpoint, sent by the lab's client: a record of every request.

Prompts are token ids, so that every server computes the same. Times between tokens are those of a
client: an event's gap is shared by its tokens.
"""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from splitserve.clock import monotonic
from splitserve.lab.load.arrivals import poisson
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.corpus.synthetic import Shape, Vocabulary, synthetic
from splitserve.lab.load.driver import (
    LEAD_S,
    ClosedLoop,
    Patience,
    Progress,
    run_closed,
    run_open,
)
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.load.request import Asking, LoadRequest
from splitserve.lab.load.schedule import at_offsets, conversations
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.target import resolve
from splitserve.lab.measure.latency import gaps, token_events, token_gaps
from splitserve.lab.measure.outcomes import standing

_LONG_S: Final = 600.0
_LIMITS: Final = Limits(connect_s=30.0, first_s=_LONG_S, gap_s=_LONG_S, total_s=2 * _LONG_S)
_PATIENCE: Final = Patience(drain_s=_LONG_S, late_s=math.inf)

_SAID: Final = 200
"""Characters of what a server said of its error."""

OnProgress = Callable[[int, int, float], None]
"""Answers ended, of how many, after how many seconds."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """``rate`` in requests per second; arrivals are Poisson over ``duration_s``. Ids of prompts are
    below ``vocab_size``."""

    rate: float
    duration_s: float
    prompt_tokens: int
    max_tokens: int
    vocab_size: int
    seed: int = 0


def requests_of(plan: LoadPlan, count: int) -> list[LoadRequest]:
    """Greedy, of full length, each different from its first token on: no prefix is shared."""
    shape = Shape(plan.prompt_tokens, plan.max_tokens)
    return synthetic("bench", plan.seed, count, shape, Vocabulary(plan.vocab_size))


@asynccontextmanager
async def client_of(url: str, model: str) -> AsyncIterator[LoadClient]:
    """Its clock starts now."""
    target = await resolve(url)
    client = LoadClient(target, Asking(model), Labels("bench", "1", monotonic()), _LIMITS)
    try:
        yield client
    finally:
        client.close()


async def run_load(
    url: str, model: str, plan: LoadPlan, progress: OnProgress
) -> list[RequestRecord]:
    """Sends the plan's requests when they are due and waits for all answers.

    ``progress`` is called after every answer.
    """
    offsets = poisson(plan.rate, plan.duration_s, plan.seed)
    schedule = at_offsets(requests_of(plan, len(offsets)), [LEAD_S + at for at in offsets])

    def watch(record: RequestRecord, now: Progress) -> None:
        del record
        progress(now.ended, len(schedule), now.elapsed_s)

    async with client_of(url, model) as client:
        return await run_open(client, schedule, _PATIENCE, watch)


async def run_streams(
    url: str, model: str, plan: LoadPlan, streams: int, count: int
) -> list[RequestRecord]:
    """``count`` requests by ``streams`` users, each of whom asks again once answered."""
    talks = conversations(requests_of(plan, count))
    async with client_of(url, model) as client:
        loop = ClosedLoop(streams, until_s=math.inf)
        return await run_closed(client, talks, loop, _PATIENCE, _unheard)


def error_of(record: RequestRecord) -> str:
    """Why this is no whole answer, in one line; empty for one."""
    if not standing(record).served:
        status = "" if record.status in (None, 200) else f"{record.status}: "
        return status + " ".join((record.error or record.outcome).split())[:_SAID]
    return "" if token_events(record) else "no token came"


def gaps_of(record: RequestRecord) -> list[float]:
    """Between tokens, in seconds; between chunks where a server does not count its tokens."""
    between = token_gaps(record)
    return (gaps(record) or []) if between is None else between


def tokens_of(record: RequestRecord) -> int:
    """How many came."""
    return sum(count for _, count in record.events)


def _unheard(record: RequestRecord, progress: Progress) -> None:
    """What is measured was announced; a line per answer would drown it."""
    del record, progress
