"""Loads for a served model as its clients see it: a number of streams, or requests that come by
themselves.

A case is written ``512/128x32`` (512 tokens in, 128 out, 32 streams: each sends its next request
when the last is answered) or ``8192/128@4`` (4 requests per second, Poisson, whether or not earlier
ones are answered).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from splitserve.bench.load import (
    LoadPlan,
    client_of,
    error_of,
    gaps_of,
    requests_of,
    run_load,
    run_streams,
    tokens_of,
)
from splitserve.bench.quantile import quantile
from splitserve.bench.served_model import served_model
from splitserve.engine.device import Kind
from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import token_events, ttft_user

OPEN_SECONDS: Final = 30.0
"""How long requests keep coming in a case with a rate."""

ROUNDS: Final = 2
LEAST_REQUESTS: Final = 10
"""A case with streams sends ROUNDS requests per stream, and not fewer than this."""

WARM_TOKENS: Final = 8
TTFT_TARGET_S: Final = 1.0
TAIL_TARGET_S: Final = 0.05
"""What a request must keep to count as attained."""

_TAIL_GAPS: Final = 100
_WRITTEN: Final = re.compile(r"([1-9]\d*)/([1-9]\d*)(?:x([1-9]\d*)|@(\d+(?:\.\d+)?))")


@dataclass(frozen=True, slots=True)
class Case:
    """``streams`` at a time or, where that is 0, ``rate`` requests per second."""

    name: str
    prompt_tokens: int
    max_tokens: int
    streams: int
    rate: float


def parse_case(text: str) -> Case:
    """See above. Raises ConfigError."""
    match = _WRITTEN.fullmatch(text)
    streams, rate = (int(match[3] or 0), float(match[4] or 0)) if match else (0, 0.0)
    if match is None or not (streams or rate):
        raise ConfigError(
            f"{text!r} is not a case; write 512/128x32 (streams) or 8192/128@4 (req/s)"
        )
    return Case(text, int(match[1]), int(match[2]), streams, rate)


CASES: Final[dict[Kind, tuple[str, ...]]] = {
    "cpu": ("128/32x1", "128/32x4", "512/32@1"),
    "cuda": (
        "512/128x1",
        "512/128x32",
        "512/128x128",
        "8192/32x1",
        "8192/128@2",
        "8192/128@4",
    ),
}


@dataclass(frozen=True, slots=True)
class ClientTimes:
    """Of one case. Milliseconds over all whole answers; ``itl`` over all their gaps.

    ``attained`` is the share of all requests, failed ones too, with a first token within
    TTFT_TARGET_S and a tail gap within TAIL_TARGET_S; the tail is p99 of a request's gaps from 100
    on, below that the largest. ``tokens_per_s`` counts from the first request to the last token.
    """

    n: int
    errors: int
    first_error: str
    ttft_p50: float
    ttft_p90: float
    ttft_p99: float
    itl_p50: float
    itl_p90: float
    itl_p99: float
    itl_max: float
    first_gap_p50: float
    tokens_per_s: float
    attained: float


def client_times(records: Sequence[RequestRecord]) -> ClientTimes:
    whole = [record for record in records if not error_of(record)]
    errors = [error for record in records if (error := error_of(record))]
    ttfts = [ttft_user(record) for record in whole]
    gaps = [gap for record in whole for gap in gaps_of(record)]
    first_gaps = [found[0] for record in whole if (found := gaps_of(record))]
    tokens = sum(map(tokens_of, whole))
    begin = min((record.intended_s for record in records), default=0.0)
    end = max((token_events(record)[-1][0] for record in whole), default=begin)
    return ClientTimes(
        n=len(records),
        errors=len(errors),
        first_error=errors[0] if errors else "",
        ttft_p50=_ms(ttfts, 0.5),
        ttft_p90=_ms(ttfts, 0.9),
        ttft_p99=_ms(ttfts, 0.99),
        itl_p50=_ms(gaps, 0.5),
        itl_p90=_ms(gaps, 0.9),
        itl_p99=_ms(gaps, 0.99),
        itl_max=_ms(gaps, 1.0),
        first_gap_p50=_ms(first_gaps, 0.5),
        tokens_per_s=round(tokens / (end - begin), 1) if tokens else 0.0,
        attained=round(sum(map(_attained, whole)) / max(1, len(records)), 3),
    )


@dataclass(frozen=True, slots=True)
class Served:
    """A running server. Prompts are ids below ``vocab_size`` and follow, like arrivals, from
    ``seed``."""

    url: str
    model: str
    vocab_size: int
    seed: int


async def find_served(url: str, vocab_size: int, seed: int) -> Served:
    """Asks for the model's name. Raises UnavailableError when nothing answers."""
    return Served(url, await served_model(url), vocab_size, seed)


async def warm(served: Served, cases: Sequence[Case]) -> None:
    """One request of each length of prompt, one after another. Raises UnavailableError when one
    fails."""
    lengths = {case.prompt_tokens: case for case in cases}
    async with client_of(served.url, served.model) as client:
        for case in lengths.values():
            plan = replace(_plan(served, case, "warm"), max_tokens=WARM_TOKENS)
            (request,) = requests_of(plan, 1)
            error = error_of(await client.send(request, client.now()))
            if error:
                raise UnavailableError(f"{served.url} failed a request to warm up: {error}")


async def measure_case(served: Served, case: Case) -> ClientTimes:
    """Sends the case's requests and waits for all answers."""
    plan = _plan(served, case, "measured")
    if case.streams:
        count = max(LEAST_REQUESTS, ROUNDS * case.streams)
        records = await run_streams(served.url, served.model, plan, case.streams, count)
    else:
        records = await run_load(served.url, served.model, plan, _unheard)
    return client_times(records)


def _plan(served: Served, case: Case, use: str) -> LoadPlan:
    """No two cases share prompts: a prefix cache would know the second one's."""
    return LoadPlan(
        rate=case.rate,
        duration_s=OPEN_SECONDS,
        prompt_tokens=case.prompt_tokens,
        max_tokens=case.max_tokens,
        vocab_size=served.vocab_size,
        seed=Random(f"{served.seed}-{case.name}-{use}").getrandbits(32),
    )


def _attained(record: RequestRecord) -> bool:
    gaps = gaps_of(record)
    tail = quantile(gaps, 0.99) if len(gaps) >= _TAIL_GAPS else max(gaps, default=0.0)
    return ttft_user(record) <= TTFT_TARGET_S and tail <= TAIL_TARGET_S


def _ms(seconds: Sequence[float], q: float) -> float:
    return round(quantile(seconds, q) * 1e3, 3)


def _unheard(finished: int, total: int, elapsed_s: float) -> None:
    """The case was announced; a line per answer would drown it."""
