"""One or more OpenAI-compatible servers, measured in turn on the same requests.

The servers take turns within every repeat, so that what disturbs the machine disturbs all of them.
Ratios are of readings from the same repeat: first server over each other one.
"""

import asyncio
import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.bench.load import (
    LoadPlan,
    client_of,
    error_of,
    gaps_of,
    requests_of,
    tokens_of,
)
from splitserve.bench.quantile import quantile
from splitserve.bench.served_model import served_model
from splitserve.errors import UnavailableError
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import ttft_user


@dataclass(frozen=True, slots=True)
class Case:
    """``streams`` requests at once of ``prompt_tokens`` in and ``max_tokens`` out.

    ``measure`` is ``itl`` (median gap over all streams) or ``ttft`` (median over streams).
    """

    name: str
    streams: int
    prompt_tokens: int
    max_tokens: int
    measure: str


CASES: Final = (
    Case("itl_1_stream", 1, 64, 64, "itl"),
    Case("itl_8_streams", 8, 64, 64, "itl"),
    Case("ttft_1024", 1, 1024, 4, "ttft"),
    Case("ttft_2048", 1, 2000, 4, "ttft"),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Milliseconds, one value per repeat, of one server."""

    case: str
    url: str
    values_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return quantile(self.values_ms, 0.5)


async def measure_endpoints(
    urls: Sequence[str], vocab_size: int, repeats: int, progress: Callable[[str], None]
) -> list[Reading]:
    """All cases on all servers. Raises UnavailableError when a server fails a request."""
    values: dict[tuple[str, str], list[float]] = {}
    # Prompts are the same for all servers and new in every run: no prefix cache knows them.
    nonce = secrets.token_hex(8)
    models = {url: await served_model(url) for url in urls}
    for url in urls:
        await _run(url, models[url], Case("warm", 2, 300, 8, "itl"), vocab_size, nonce)
    for case in CASES:
        for repeat in range(repeats):
            for url in urls:
                progress(f"{case.name}: repeat {repeat + 1} of {repeats}, {url}")
                records = await _run(url, models[url], case, vocab_size, f"{nonce}-{repeat}")
                values.setdefault((case.name, url), []).append(_value(case, records))
    return [Reading(name, url, tuple(found)) for (name, url), found in values.items()]


def ratios(readings: Sequence[Reading], case: str, ours: str, peer: str) -> list[float]:
    """Per repeat, ours over the peer's."""
    by_url = {reading.url: reading.values_ms for reading in readings if reading.case == case}
    return [a / b for a, b in zip(by_url[ours], by_url[peer], strict=True)]


def _value(case: Case, records: Sequence[RequestRecord]) -> float:
    if case.measure == "ttft":
        return quantile([ttft_user(record) for record in records], 0.5) * 1e3
    return quantile([gap for record in records for gap in gaps_of(record)], 0.5) * 1e3


async def _run(url: str, model: str, case: Case, vocab_size: int, seed: str) -> list[RequestRecord]:
    plan = LoadPlan(
        rate=0.0,
        duration_s=0.0,
        prompt_tokens=case.prompt_tokens,
        max_tokens=case.max_tokens,
        vocab_size=vocab_size,
        seed=random.Random(f"{case.name}-{seed}").getrandbits(32),
    )
    async with client_of(url, model) as client:
        records = await asyncio.gather(
            *(client.send(request, client.now()) for request in requests_of(plan, case.streams))
        )
    for record in records:
        if error_of(record) or tokens_of(record) != case.max_tokens:
            error = error_of(record) or f"{tokens_of(record)} tokens came"
            raise UnavailableError(f"{url} failed {case.name}: {error}")
    return list(records)
