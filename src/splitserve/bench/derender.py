"""What derendering costs a token: at the begin and the end of a long answer, and beside
detokenising alone."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tokenizers.decoders import DecodeStream

from splitserve.bench.long_answer import LongAnswer, long_answer
from splitserve.bench.quantile import quantile
from splitserve.frontend.derender.options import AnswerOptions
from splitserve.frontend.derender.pipeline import PLAIN, Derenderer
from splitserve.frontend.model import ServedModel
from splitserve.ids import RequestId
from splitserve.protocol.generate import TokenChunk

WINDOW: Final = 1000

Feed = Callable[[int, int], object]
"""Takes ``(position, token id)``."""


@dataclass(frozen=True, slots=True)
class DerenderReading:
    """Microseconds a token: of the first and the last ``WINDOW`` tokens, and of all.

    ``last_to_first`` shows whether the cost grows along the answer; ``to_detokenise`` compares
    the total with the library's own incremental detokenising of the same tokens. Medians over the
    repeats, of ratios within one repeat.
    """

    way: str
    tokens: int
    us_per_token: float
    first_us: float
    last_us: float
    last_to_first: float
    to_detokenise: float
    to_detokenise_min: float
    to_detokenise_max: float


@dataclass(frozen=True, slots=True)
class _Run:
    total: float
    first: float
    last: float


def measure_derender(model: ServedModel, tokens: int, repeats: int) -> Iterator[DerenderReading]:
    """One token a chunk. The ways take turns, so that a change of the machine's pace meets all."""
    answer = long_answer(model.tokenizer, tokens)
    ways = _ways(model, answer)
    runs: dict[str, list[_Run]] = {way: [] for way in ways}
    for _ in range(repeats + 1):
        for way, begin in ways.items():
            runs[way].append(_run(begin(), answer))
    base = runs["detokenise"]
    for way in ways:
        # The first repeat fills caches.
        yield _reading(way, tokens, runs[way][1:], base[1:])


def _ways(model: ServedModel, answer: LongAnswer) -> dict[str, Callable[[], Feed]]:
    tokenizer = model.tokenizer

    def detokenise() -> Feed:
        stream, inner = DecodeStream(skip_special_tokens=True), tokenizer.inner
        return lambda _, token_id: stream.step(inner, token_id)

    def derender(parsed: bool) -> Feed:
        context = answer.context if parsed else PLAIN
        derenderer = Derenderer(tokenizer, AnswerOptions(), context=context)
        name = RequestId("bench")
        return lambda at, token_id: derenderer.feed(TokenChunk(name, at, (token_id,)))

    return {
        "detokenise": detokenise,
        "derender": lambda: derender(False),
        "derender, reasoning and tools parsed": lambda: derender(True),
    }


def _run(feed: Feed, answer: LongAnswer) -> _Run:
    times = []
    for start in range(0, len(answer.token_ids), WINDOW):
        began = time.perf_counter()
        for at, token_id in enumerate(answer.token_ids[start : start + WINDOW], start):
            feed(at, token_id)
        times.append(time.perf_counter() - began)
    whole = times[:-1] if len(answer.token_ids) % WINDOW else times
    return _Run(sum(times), whole[0], whole[-1])


def _reading(way: str, tokens: int, runs: list[_Run], base: list[_Run]) -> DerenderReading:
    ratios = [run.total / plain.total for run, plain in zip(runs, base, strict=True)]
    return DerenderReading(
        way=way,
        tokens=tokens,
        us_per_token=_median([run.total for run in runs]) / tokens * 1e6,
        first_us=_median([run.first for run in runs]) / WINDOW * 1e6,
        last_us=_median([run.last for run in runs]) / WINDOW * 1e6,
        last_to_first=_median([run.last / run.first for run in runs]),
        to_detokenise=_median(ratios),
        to_detokenise_min=min(ratios),
        to_detokenise_max=max(ratios),
    )


def _median(values: list[float]) -> float:
    return quantile(values, 0.5)
