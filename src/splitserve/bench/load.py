"""Open-loop load on an OpenAI-compatible endpoint: requests leave when due, not when answered.

TTFT is from the due time of a request to its first token; ITL are the gaps between tokens, as
seen by the client (brief B7). Prompts are token ids, so that every server computes the same.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import msgspec

FIRST_ORDINARY_ID: Final = 100
"""Ids below are often control tokens."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """``rate`` in requests per second; arrivals are Poisson over ``duration_s``."""

    rate: float
    duration_s: float
    prompt_tokens: int
    max_tokens: int
    vocab_size: int
    seed: int = 0


@dataclass(slots=True)
class Sample:
    """One request as the client saw it. Times are seconds from the start of the load.

    ``tokens`` holds the arrival time of every token; ``error`` is empty for a whole answer.
    """

    due: float
    tokens: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def ttft(self) -> float:
        return self.tokens[0] - self.due

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in zip(self.tokens, self.tokens[1:], strict=False)]


def arrivals(plan: LoadPlan) -> list[float]:
    """Due times of a Poisson process, the same for the same plan."""
    stream = random.Random(f"arrivals-{plan.seed}")
    due, times = stream.expovariate(plan.rate), []
    while due < plan.duration_s:
        times.append(due)
        due += stream.expovariate(plan.rate)
    return times


def prompts(plan: LoadPlan, count: int) -> list[list[int]]:
    """Random prompts, each different from its first token on: no prefix is shared."""
    stream = random.Random(f"prompts-{plan.seed}")
    ids = range(FIRST_ORDINARY_ID, plan.vocab_size)
    return [[stream.choice(ids) for _ in range(plan.prompt_tokens)] for _ in range(count)]


async def run_load(
    url: str, model: str, plan: LoadPlan, progress: Callable[[int, int, float], None]
) -> list[Sample]:
    """Sends the plan's requests and waits for all answers.

    ``progress(finished, total, elapsed_s)`` is called after every answer.
    """
    due_times = arrivals(plan)
    bodies = [
        completion_body(model, prompt, plan.max_tokens) for prompt in prompts(plan, len(due_times))
    ]
    timeout = aiohttp.ClientTimeout(total=plan.duration_s + 600)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        start = time.perf_counter()
        samples: list[Sample] = []

        async def one(due: float, body: bytes) -> None:
            await asyncio.sleep(max(0.0, due - (time.perf_counter() - start)))
            sample = await stream_completion(session, url, body, due, start)
            samples.append(sample)
            progress(len(samples), len(due_times), time.perf_counter() - start)

        async with asyncio.TaskGroup() as group:
            for due, body in zip(due_times, bodies, strict=True):
                group.create_task(one(due, body))
    return samples


def completion_body(model: str, prompt: Sequence[int], max_tokens: int) -> bytes:
    """A greedy, streamed, full-length completion of a prompt of token ids."""
    return msgspec.json.encode(
        {
            "model": model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
        }
    )


async def stream_completion(
    session: aiohttp.ClientSession,
    url: str,
    body: bytes,
    due: float | None = None,
    start: float = 0,
) -> Sample:
    """Sends one request and notes when its tokens come. Never raises: failures go to ``error``.

    Times count from ``start`` (of ``time.perf_counter``); ``due`` None means now.
    """
    if due is None:
        due = time.perf_counter() - start
    sample = Sample(due)
    headers = {"Content-Type": "application/json"}
    try:
        async with session.post(f"{url}/v1/completions", data=body, headers=headers) as answer:
            if answer.status != 200:
                sample.error = f"{answer.status}: {(await answer.text())[:200]}"
                return sample
            finished = await _read(answer, sample, start)
    except (aiohttp.ClientError, TimeoutError) as error:
        sample.error = f"{type(error).__name__}: {error}"
        return sample
    if not finished and not sample.error:
        sample.error = "the stream ended without [DONE]"
    return sample


async def _read(answer: aiohttp.ClientResponse, sample: Sample, start: float) -> bool:
    """True when the stream ended as it should."""
    async for line in answer.content:
        if not line.startswith(b"data:"):
            continue
        now = time.perf_counter() - start
        data = line[5:].strip()
        if data == b"[DONE]":
            return True
        event = msgspec.json.decode(data)
        if "error" in event:
            sample.error = str(event["error"].get("message", event["error"]))
            return False
        for choice in event.get("choices", ()):
            count = len(choice.get("token_ids") or ())
            sample.tokens += [now] * (count or bool(choice.get("text")))
    return False
