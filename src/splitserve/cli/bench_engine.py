"""``splitserve bench engine``: one runner alone, without scheduler, sockets and text."""

import json
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import pairwise
from typing import Final

from splitserve.bench.quantile import quantile
from splitserve.engine.api import PENDING, Row, Runner, SampleSpec
from splitserve.engine.config import EngineConfig, SchedulerConfig
from splitserve.engine.device import DEFAULTS, Kind, parse_device
from splitserve.engine.registry import runner_target
from splitserve.errors import ConfigError
from splitserve.ids import RequestId
from splitserve.loading import load
from splitserve.protocol.sampling import SamplingParams

_REPEATS: Final = 7
_STEPS: Final = 64
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
    """Milliseconds of one step (decode) or of a whole prompt (prefill).

    ``tokens_per_s``, of all sequences together, follows from the median.
    """

    case: str
    batch: int
    tokens: int
    median_ms: float
    p10_ms: float
    p90_ms: float
    tokens_per_s: float
    repeats: int
    device: str
    dtype: str
    threads: int
    torch: str


def _decode(batch: int, context: int) -> _Case:
    return _Case(f"decode batch {batch} at {context}", batch, context, _STEPS)


def _prefill(tokens: int) -> _Case:
    return _Case(f"prefill {tokens}", 1, tokens, 0)


_CASES: Final[dict[Kind, tuple[_Case, ...]]] = {
    "cpu": (_decode(1, 64), _decode(8, 64), _prefill(1024), _prefill(2048)),
    "cuda": (
        *(_decode(batch, 512) for batch in (1, 8, 32, 128)),
        _decode(1, 8192),
        *(_prefill(tokens) for tokens in (512, 2048, 8192)),
    ),
}


def run(model: str, dtype: str, device: str, load_format: str, threads: int, as_json: bool) -> int:
    """Prints a line per case; progress goes to stderr. Prompts come in chunks of the device's
    default size.

    Raises ConfigError and UnavailableError as loading the model does.
    """
    config = _config(model, dtype, device, load_format, threads)
    print(f"loading {model}", file=sys.stderr)
    runner: Runner = load(runner_target("native", device))(config)
    chunk = config.scheduler.max_num_batched_tokens
    try:
        for case in _CASES[parse_device(device).kind]:
            print(f"measuring {case.case}", file=sys.stderr)
            reading = _reading(case, _Sequences(runner, case, chunk).measure(), runner, config)
            print(json.dumps(asdict(reading)) if as_json else _line(reading), flush=True)
    finally:
        runner.close()
    return 0


def _config(model: str, dtype: str, device: str, load_format: str, threads: int) -> EngineConfig:
    sizes = DEFAULTS[parse_device(device).kind]
    return EngineConfig(
        model,
        dtype=dtype,
        device=str(parse_device(device)),
        threads=threads,
        load_format=load_format,
        kv_cache_memory_bytes=sizes.kv_cache_memory_bytes,
        scheduler=SchedulerConfig(sizes.max_num_seqs, sizes.max_num_batched_tokens),
    )


class _Sequences:
    """A case's sequences in a runner. A sequence has the same table of blocks in all its rows."""

    def __init__(self, runner: Runner, case: _Case, chunk: int) -> None:
        info = runner.describe()
        each = -(-(case.tokens + case.steps) // info.layout.block_size)
        if each * case.batch > info.layout.num_blocks:
            raise ConfigError(
                f"{case.case} needs {each * case.batch} KV blocks and there are "
                f"{info.layout.num_blocks}: free memory on the device"
            )
        self._runner = runner
        self._case = case
        self._chunk = chunk
        self._vocab_size = info.vocab_size
        self._blocks = [
            list(range(number * each, (number + 1) * each)) for number in range(case.batch)
        ]

    def measure(self) -> list[float]:
        """Milliseconds of each repeat."""
        if self._case.steps == 0:
            self._compute_prompt(0)
            return [self._compute_prompt(0) for _ in range(_REPEATS)]
        for number in range(self._case.batch):
            self._compute_prompt(number)
        return self._compute_answers()

    def _compute_prompt(self, number: int) -> float:
        """With its first token, chunk after chunk; milliseconds."""
        started = time.perf_counter()
        for start in range(0, self._case.tokens, self._chunk):
            end = min(start + self._chunk, self._case.tokens)
            self._runner.launch([self._prompt_row(number, start, end)], None)
            self._runner.collect()
        return (time.perf_counter() - started) * 1e3

    def _compute_answers(self) -> list[float]:
        """Milliseconds from one step's tokens to the next one's, all sequences in one batch.

        A runner of depth 2 always has the next step when it brings one, as in serving.
        """
        brought, depth = list[float](), self._runner.depth
        for step in range(self._case.steps + depth - 1):
            if step < self._case.steps:
                self._runner.launch(self._answer_rows(step, ahead=depth > 1 and step > 0), None)
            if step >= depth - 1:
                self._runner.collect()
                brought.append(time.perf_counter() * 1e3)
        return [after - before for before, after in pairwise(brought)]

    def _prompt_row(self, number: int, start: int, end: int) -> Row:
        tokens = [self._token(number, at) for at in range(start, end)]
        return self._row(number, tokens, start, sampled=end == self._case.tokens)

    def _answer_rows(self, step: int, *, ahead: bool) -> list[Row]:
        """``ahead``: of tokens that the launch before is still choosing."""
        at, batch = self._case.tokens + step, range(self._case.batch)
        if ahead:
            return [self._row(number, [PENDING], at, follows=number) for number in batch]
        return [self._row(number, [self._token(number, at)], at) for number in batch]

    def _row(
        self,
        number: int,
        tokens: list[int],
        start: int,
        *,
        sampled: bool = True,
        follows: int | None = None,
    ) -> Row:
        return Row(
            RequestId(f"{self._case.case}-{number}"),
            tokens,
            start,
            self._blocks[number],
            SampleSpec(_GREEDY, position=0) if sampled else None,
            follows,
        )

    def _token(self, number: int, at: int) -> int:
        return (number * 7919 + at * 31) % self._vocab_size


def _reading(case: _Case, values: list[float], runner: Runner, config: EngineConfig) -> _Reading:
    median_ms = quantile(values, 0.5)
    return _Reading(
        case.case,
        case.batch,
        case.tokens,
        median_ms=round(median_ms, 3),
        p10_ms=round(quantile(values, 0.1), 3),
        p90_ms=round(quantile(values, 0.9), 3),
        tokens_per_s=round((case.batch if case.steps else case.tokens) / median_ms * 1e3, 1),
        repeats=len(values),
        device=config.device,
        dtype=runner.describe().dtype,
        threads=config.threads,
        torch=version("torch"),
    )


def _line(reading: _Reading) -> str:
    return (
        f"{reading.case:<24} {reading.median_ms:9.2f} ms median  {reading.p10_ms:9.2f} p10  "
        f"{reading.p90_ms:9.2f} p90  {reading.tokens_per_s:10.0f} tokens/s  "
        f"({reading.device}, {reading.dtype}, {reading.threads} thread(s))"
    )
