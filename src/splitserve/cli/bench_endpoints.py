"""``splitserve bench endpoints``: servers side by side on the same requests."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from splitserve.bench.endpoints import CASES, Reading, measure_endpoints, ratios
from splitserve.bench.quantile import quantile
from splitserve.cli.readings import print_progress, print_readings


@dataclass(frozen=True, slots=True)
class _Row:
    """Milliseconds: median, smallest and largest over the repeats."""

    case: str
    url: str
    median_ms: float
    min_ms: float
    max_ms: float
    repeats: int


@dataclass(frozen=True, slots=True)
class _Ratio:
    """First server over another, per repeat."""

    case: str
    first: str
    other: str
    median_ratio: float
    min_ratio: float
    max_ratio: float


def run(urls: Sequence[str], vocab_size: int, repeats: int, as_json: bool) -> int:
    readings = asyncio.run(measure_endpoints(urls, vocab_size, repeats, print_progress))
    print_readings(_rows(readings), as_json)
    print_readings(_ratios(readings, urls), as_json)
    return 0


def _rows(readings: Sequence[Reading]) -> Iterator[_Row]:
    for reading in readings:
        values = reading.values_ms
        yield _Row(
            reading.case, reading.url, reading.median_ms, min(values), max(values), len(values)
        )


def _ratios(readings: Sequence[Reading], urls: Sequence[str]) -> Iterator[_Ratio]:
    for case in CASES:
        for other in urls[1:]:
            found = ratios(readings, case.name, urls[0], other)
            yield _Ratio(case.name, urls[0], other, quantile(found, 0.5), min(found), max(found))
