"""``splitserve bench engine``: one runner alone, without scheduler, sockets and text."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Final

from splitserve.bench.quantile import quantile
from splitserve.engine.api import Row, Runner, SampleSpec
from splitserve.engine.config import EngineConfig, SchedulerConfig
from splitserve.engine.registry import RUNNERS
from splitserve.ids import RequestId
from splitserve.loading import load
from splitserve.protocol.sampling import SamplingParams

_DECODE_BATCHES: Final = (1, 8)
_DECODE_CONTEXT: Final = 64
_DECODE_STEPS: Final = 64
_PREFILL_TOKENS: Final = (1024, 2048)
_PREFILL_REPEATS: Final = 7
_CHUNK: Final = SchedulerConfig().max_num_batched_tokens
_GREEDY: Final = SamplingParams(seed=0, max_tokens=1, temperature=0.0)


@dataclass(frozen=True, slots=True)
class _Case:
    """``tokens`` of prompt for each of ``batch`` sequences, then ``steps`` of decode.

    Without steps the prompt is what is timed.
    """

    case: str
    batch: int
    tokens: int
    steps: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """Milliseconds of one step (decode) or of a whole prompt (prefill)."""

    case: str
    batch: int
    tokens: int
    median_ms: float
    p10_ms: float
    p90_ms: float
    repeats: int
    dtype: str
    threads: int
    torch: str


def run(model: str, dtype: str, threads: int, as_json: bool) -> int:
    """Prints a line per case; progress goes to stderr. Prompts come in chunks of the default size.

    Raises ConfigError and UnavailableError as loading the model does.
    """
    print(f"loading {model}", file=sys.stderr)
    config = EngineConfig(model, dtype=dtype, threads=threads, kv_cache_memory_bytes=1 << 30)
    runner: Runner = load(RUNNERS["native"])(config)
    try:
        for case in _cases():
            print(f"measuring {case.case}", file=sys.stderr)
            reading = _reading(case, _measure(runner, case), runner.describe().dtype, threads)
            print(json.dumps(asdict(reading)) if as_json else _line(reading), flush=True)
    finally:
        runner.close()
    return 0


def _cases() -> Iterator[_Case]:
    for batch in _DECODE_BATCHES:
        yield _Case(f"decode batch {batch}", batch, _DECODE_CONTEXT, _DECODE_STEPS)
    for tokens in _PREFILL_TOKENS:
        yield _Case(f"prefill {tokens}", 1, tokens, 0)


def _measure(runner: Runner, case: _Case) -> list[float]:
    if case.steps == 0:
        _prefill(runner, case, 0)
        return [_prefill(runner, case, 0) for _ in range(_PREFILL_REPEATS)]
    for sequence in range(case.batch):
        _prefill(runner, case, sequence)
    return [_decode(runner, case, case.tokens + step) for step in range(case.steps)]


def _prefill(runner: Runner, case: _Case, sequence: int) -> float:
    """Computes a prompt and its first token; milliseconds."""
    started = time.perf_counter()
    for start in range(0, case.tokens, _CHUNK):
        end = min(start + _CHUNK, case.tokens)
        _step(runner, [_row(runner, case, sequence, range(start, end))])
    return (time.perf_counter() - started) * 1e3


def _decode(runner: Runner, case: _Case, at: int) -> float:
    """Computes one token for each sequence; milliseconds."""
    rows = [_row(runner, case, sequence, range(at, at + 1)) for sequence in range(case.batch)]
    started = time.perf_counter()
    _step(runner, rows)
    return (time.perf_counter() - started) * 1e3


def _step(runner: Runner, rows: list[Row]) -> None:
    runner.launch(rows, None)
    runner.collect()


def _row(runner: Runner, case: _Case, sequence: int, positions: range) -> Row:
    info = runner.describe()
    blocks = -(-(case.tokens + case.steps) // info.layout.block_size)
    sampled = positions.stop >= case.tokens
    return Row(
        RequestId(f"bench-{sequence}"),
        tokens=[(sequence * 7919 + at * 31) % info.vocab_size for at in positions],
        start=positions.start,
        blocks=range(sequence * blocks, (sequence + 1) * blocks),
        sample=SampleSpec(_GREEDY, position=0) if sampled else None,
    )


def _reading(case: _Case, values: list[float], dtype: str, threads: int) -> _Reading:
    return _Reading(
        case.case,
        case.batch,
        case.tokens,
        median_ms=round(quantile(values, 0.5), 3),
        p10_ms=round(quantile(values, 0.1), 3),
        p90_ms=round(quantile(values, 0.9), 3),
        repeats=len(values),
        dtype=dtype,
        threads=threads,
        torch=version("torch"),
    )


def _line(reading: _Reading) -> str:
    return (
        f"{reading.case:<16} {reading.median_ms:9.2f} ms median  {reading.p10_ms:9.2f} p10  "
        f"{reading.p90_ms:9.2f} p90  ({reading.dtype}, {reading.threads} thread(s))"
    )
