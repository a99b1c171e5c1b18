"""What each turn of a chat costs over one prefill and one decode worker.

A turn's prompt is all that was said before, the answers as they were served, and as many new tokens
as every other turn has. Beside each turn, and in turn with it, goes a prompt of the same length of
which no worker knows anything: what the turn would cost if its history had to be computed again.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import aiohttp

from splitserve.bench.load import client_of, error_of, tokens_of
from splitserve.bench.quantile import quantile
from splitserve.bench.scrape import PromptTokens, read_prompt_tokens
from splitserve.bench.serve_cases import Served
from splitserve.errors import UnavailableError
from splitserve.lab.load.client import LoadClient
from splitserve.lab.load.corpus.synthetic import (
    SessionShape,
    Shape,
    Vocabulary,
    synthetic,
    synthetic_sessions,
)
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.load.request import LoadRequest, prompt_lengths
from splitserve.lab.measure.latency import ttft_user

SETTLED_S: Final = 0.3
"""A gateway hears of its workers several times within this: counts that stay so long are whole."""


@dataclass(frozen=True, slots=True)
class TalkShape:
    """Every turn has ``turn_tokens`` new ones and an answer of ``answer_tokens``."""

    turns: int
    turn_tokens: int
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt: its tokens, of which the prefill worker computed and pulled so many."""

    prompt_tokens: int
    computed: int
    pulled: int
    ttft_s: float


@dataclass(frozen=True, slots=True)
class Turn:
    """``number`` counts from 1. ``fresh`` is the unknown prompt of the same length."""

    number: int
    told: Asked
    fresh: Asked


Talk = Sequence[Turn]

OnTalk = Callable[[int], None]
"""Called with the number of talks that are over."""


@dataclass(frozen=True, slots=True)
class TurnReading:
    """One turn over all talks. Counts are the largest, of ``pulled`` the smallest; times are
    medians with the smallest and the largest, in milliseconds."""

    turn: int
    prompt_tokens: int
    computed: int
    pulled: int
    ttft_ms: float
    ttft_min_ms: float
    ttft_max_ms: float
    fresh_computed: int
    fresh_ttft_ms: float
    fresh_ttft_min_ms: float
    fresh_ttft_max_ms: float


@dataclass(frozen=True, slots=True)
class RatioReading:
    """Of two times to first token within each talk: median, smallest and largest."""

    ratio: str
    median: float
    min: float
    max: float
    talks: int


async def measure_turns(served: Served, shape: TalkShape, talks: int, heard: OnTalk) -> list[Talk]:
    """``talks`` one after the other, after one that does not count. Nothing else must use the
    deployment. Raises UnavailableError when a request fails."""
    found: list[Talk] = []
    async with client_of(served.url, served.model) as client, aiohttp.ClientSession() as session:
        asking = _Asking(client, session, served.url)
        for number in range(talks + 1):
            seed = Random(f"{served.seed}-{number}").getrandbits(32)
            found.append(await _talk(asking, shape, Vocabulary(served.vocab_size), seed))
            heard(number)
    return found[1:]


def turn_readings(talks: Sequence[Talk]) -> list[TurnReading]:
    return [_reading(turns) for turns in zip(*talks, strict=True)]


def ratio_readings(talks: Sequence[Talk]) -> list[RatioReading]:
    """The last turn over the second, which is the first with a history; and what the last would
    cost without one over what it does cost."""
    last = len(talks[0])
    return [
        _ratio(
            f"turn {last} / turn 2", [talk[-1].told.ttft_s / talk[1].told.ttft_s for talk in talks]
        ),
        _ratio(
            f"fresh prompt / turn {last}",
            [talk[-1].fresh.ttft_s / talk[-1].told.ttft_s for talk in talks],
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Asking:
    client: LoadClient
    session: aiohttp.ClientSession
    url: str

    async def ask(self, request: LoadRequest, prompt_tokens: int) -> Asked:
        before = await self._counted()
        record = await self.client.send(request, self.client.now())
        _check(record, request, prompt_tokens)
        cost = (await self._counted()).since(before)
        return Asked(prompt_tokens, int(cost.computed), int(cost.pulled), ttft_user(record))

    async def _counted(self) -> PromptTokens:
        """Once they no longer change."""
        counted = await read_prompt_tokens(self.session, self.url)
        while True:
            await asyncio.sleep(SETTLED_S)
            before, counted = counted, await read_prompt_tokens(self.session, self.url)
            if counted == before:
                return counted


async def _talk(asking: _Asking, shape: TalkShape, vocabulary: Vocabulary, seed: int) -> Talk:
    new, answer = shape.turn_tokens, shape.answer_tokens
    session = SessionShape(shape.turns, new, new, answer, think_s=0.0)
    turns = synthetic_sessions("turns", seed, 1, session, vocabulary)
    found: list[Turn] = []
    for number, (turn, length) in enumerate(zip(turns, prompt_lengths(turns), strict=True), 1):
        told = await asking.ask(turn, length)
        unknown = Shape(length, answer)
        (fresh,) = synthetic(f"fresh-{number}", seed, 1, unknown, vocabulary)
        found.append(Turn(number, told, await asking.ask(fresh, length)))
    return found


def _check(record: RequestRecord, request: LoadRequest, prompt_tokens: int) -> None:
    """Raises UnavailableError unless it was served as asked."""
    error = error_of(record)
    if not error and tokens_of(record) != request.max_tokens:
        error = f"{tokens_of(record)} tokens came"
    if not error and record.prompt_tokens != prompt_tokens:
        error = f"its prompt had {record.prompt_tokens} tokens, not {prompt_tokens}"
    if error:
        raise UnavailableError(f"request {request.request_id} failed: {error}")


def _reading(turns: Sequence[Turn]) -> TurnReading:
    told = [turn.told for turn in turns]
    fresh = [turn.fresh for turn in turns]
    ttfts = [asked.ttft_s * 1e3 for asked in told]
    fresh_ttfts = [asked.ttft_s * 1e3 for asked in fresh]
    return TurnReading(
        turn=turns[0].number,
        prompt_tokens=told[0].prompt_tokens,
        computed=max(asked.computed for asked in told),
        pulled=min(asked.pulled for asked in told),
        ttft_ms=quantile(ttfts, 0.5),
        ttft_min_ms=min(ttfts),
        ttft_max_ms=max(ttfts),
        fresh_computed=max(asked.computed for asked in fresh),
        fresh_ttft_ms=quantile(fresh_ttfts, 0.5),
        fresh_ttft_min_ms=min(fresh_ttfts),
        fresh_ttft_max_ms=max(fresh_ttfts),
    )


def _ratio(name: str, values: Sequence[float]) -> RatioReading:
    return RatioReading(name, quantile(values, 0.5), min(values), max(values), len(values))
