"""A Runner without a model: hashes instead of tensors, KV that matters, time as configured.

Computing a position reads the hash of the one before from the pool, in every layer, K/V and head,
and the next token is a function of it. So a lost, late, swapped or foreign block gives a wrong
token, and most such faults are found before that: KV that this runner did not compute itself for
the same request is checked from the start.

Tests, demos and gateway benchmarks use it in place of ``native``. ``fake_tokens`` says what it
must answer.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import log
from pathlib import Path
from typing import Final

from splitserve.engine.api import PENDING, KVSink, ModelInfo, Row, Sampled, SampleSpec
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.grammar.store import read_text
from splitserve.engine.kv.hashed import ROOT, HashPool, Run, chain, mix
from splitserve.errors import BugError, ConfigError
from splitserve.ids import RequestId
from splitserve.protocol.generate import TokenLogprob
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.protocol.sampling import SamplingParams

_ITEM_BYTES: Final = 2
_MAX_KNOWN: Final = 4096
_GREEDY: Final = SamplingParams(seed=0, max_tokens=1, temperature=0.0)


@dataclass(frozen=True, slots=True)
class FakeConfig:
    """Answers are made of the ids ``token_low`` to ``token_high - 1`` (None: ``vocab_size``),
    without the end-of-sequence ids. One of the latter is chosen only from output position
    ``eos_after`` on (None: never), so answers end at ``max_tokens`` by default.

    A step takes ``step_s`` + ``prefill_token_s`` for each token of a prompt + ``decode_seq_s`` for
    each decoding sequence, in seconds. ``head_dim`` counts 2-byte items, a multiple of 8.
    ``tensor_parallel_size`` pools share out the KV heads.
    ``tokenizer`` is a tokenizer.json, which constrained answers need; those keep to what they are
    allowed, also outside the range above.

    With ``depth`` 1 a launch computes at once. With 2 it is done as late as a device might do it:
    when it is collected or, for the sink's sake, when KV is pushed.
    """

    model: str = "fake"
    vocab_size: int = 1024
    token_low: int = 16
    token_high: int | None = None
    eos_token_ids: tuple[int, ...] = (2,)
    eos_after: int | None = None
    max_model_len: int = 8192
    block_size: int = 16
    num_blocks: int = 1024
    num_layers: int = 2
    num_kv_heads: int = 1
    tensor_parallel_size: int = 1
    head_dim: int = 8
    tokenizer: Path | None = None
    step_s: float = 0.0
    prefill_token_s: float = 0.0
    decode_seq_s: float = 0.0
    depth: int = 1
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)

    @property
    def token_end(self) -> int:
        return self.vocab_size if self.token_high is None else self.token_high

    @property
    def layout(self) -> KVLayout:
        return KVLayout(
            dtype="bfloat16",
            num_layers=self.num_layers,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            block_size=self.block_size,
            num_blocks=self.num_blocks,
            itemsize=_ITEM_BYTES,
        )


def _check_config(config: FakeConfig) -> None:
    sizes = (config.block_size, config.num_blocks, config.num_layers, config.num_kv_heads)
    if min(sizes) < 1:
        raise ConfigError("block_size, num_blocks, num_layers and num_kv_heads must be at least 1")
    if config.depth not in (1, 2):
        raise ConfigError(f"depth is {config.depth}; it must be 1 or 2")
    if config.max_model_len < 2:
        raise ConfigError(f"max_model_len is {config.max_model_len}; it must be at least 2")
    low, end = config.token_low, config.token_end
    if not 0 <= low < end <= config.vocab_size:
        raise ConfigError(f"token ids {low} to {end} are no range in 0 to {config.vocab_size}")
    if all(token in config.eos_token_ids for token in range(low, end)):
        raise ConfigError("every id from token_low to token_high ends the sequence")


def _choose(config: FakeConfig, state: int, spec: SampleSpec) -> int:
    """The token after the position with hash ``state``.

    Greedy is the likeliest id that may be chosen; otherwise ``(seed, position)`` decide where in
    the ranking to start looking for one.
    """
    params = spec.params
    if config.eos_after is not None and spec.position >= config.eos_after:
        for token in config.eos_token_ids:
            if _may_choose(spec, token) and not params.ignore_eos:
                return token
    if params.temperature > 0.0:
        state = mix(mix(state, params.seed), spec.position)
    low, span = config.token_low, config.token_end - config.token_low
    for rank in range(span):
        token = low + (state + rank) % span
        if token not in config.eos_token_ids and _may_choose(spec, token):
            return token
    for rank in range(config.vocab_size if spec.allowed is not None else 0):
        token = (state + rank) % config.vocab_size
        if _may_choose(spec, token):
            return token
    raise BugError("every token id is banned")


def _may_choose(spec: SampleSpec, token: int) -> bool:
    if spec.allowed is not None and not spec.allowed[token // 8] >> token % 8 & 1:
        return False
    return token not in spec.banned


def _logprob(config: FakeConfig, state: int, token: int, count: int) -> TokenLogprob:
    """Each next id in the ranking of hash ``state`` is half as likely as the one before."""
    low, span = config.token_low, config.token_end - config.token_low
    in_range = low <= token < config.token_end
    rank = (token - low - state) % span + 1 if in_range else span + 1
    top = tuple(
        (low + (state + place) % span, -log(2.0) * (place + 1)) for place in range(min(count, span))
    )
    return TokenLogprob(token_id=token, logprob=-log(2.0) * rank, rank=rank, top=top)


def fake_tokens(
    prompt: Sequence[int],
    n: int,
    params: SamplingParams = _GREEDY,
    config: FakeConfig = FakeConfig(),
) -> list[int]:
    """The answer to ``prompt``: ``n`` tokens, or fewer if one of them ends it."""
    state = chain(ROOT, prompt)[-1]
    stops = set(params.stop_token_ids)
    if not params.ignore_eos:
        stops.update(config.eos_token_ids)
    answer: list[int] = []
    for position in range(n):
        banned = tuple(stops) if position < params.min_tokens else ()
        token = _choose(config, state, SampleSpec(params, position, banned=banned))
        answer.append(token)
        if token in stops:
            break
        state = mix(state, token)
    return answer


@dataclass(slots=True)
class _Launch:
    """``sampled`` is None until it is computed; ``pause_s`` is what collecting it still takes.
    ``before`` is the launch whose tokens it needs."""

    rows: list[Row]
    num_sampled: int
    pause_s: float
    before: "_Launch | None"
    sampled: list[Sampled] | None = None

    def token(self, row: int) -> int:
        """What the launch before chose."""
        if self.before is None or self.before.sampled is None:
            raise BugError("a launch is computed whose tokens are not known")
        return self.before.sampled[row].token_id


class FakeRunner:
    """See the module. Raises ConfigError for a configuration it cannot run.

    ``sleep`` receives seconds; it is called once per layer while KV is pushed, else once per step,
    and never with zero.
    """

    def __init__(
        self, config: FakeConfig = FakeConfig(), sleep: Callable[[float], None] = time.sleep
    ) -> None:
        _check_config(config)
        self._config = config
        self._sleep = sleep
        self._pool = HashPool(config.layout.shards(config.tensor_parallel_size))
        self._open: deque[_Launch] = deque()
        self._known: dict[RequestId, int] = {}
        """Positions of a request that this runner computed or checked."""

    @property
    def depth(self) -> int:
        return self._config.depth

    def describe(self) -> ModelInfo:
        config = self._config
        meaning = (
            config.vocab_size,
            config.token_low,
            config.token_end,
            config.eos_token_ids,
            config.eos_after,
        )
        return ModelInfo(
            name=config.model,
            content_hash=blake2b(repr(meaning).encode(), digest_size=16).hexdigest(),
            dtype=config.layout.dtype,
            vocab_size=config.vocab_size,
            max_model_len=config.max_model_len,
            eos_token_ids=config.eos_token_ids,
            layout=config.layout,
        )

    def tokenizer_json(self) -> str | None:
        path = self._config.tokenizer
        return None if path is None else read_text(path)

    def regions(self) -> tuple[MemoryRegion, ...]:
        return self._pool.regions()

    def launch(self, rows: Sequence[Row], sink: KVSink | None) -> None:
        """Raises BugError when KV that a row builds on is not what its tokens say; where a launch
        computes later, it is then that it is raised."""
        if len(self._open) == self.depth:
            raise BugError(f"launch was called with {self.depth} open")
        before = self._open[-1] if self._open else None
        for row in rows:
            _check_follows(row, 0 if before is None else before.num_sampled)
        asked = sum(row.sample is not None for row in rows)
        launch = _Launch(list(rows), asked, self._cost(rows), before)
        if sink is not None or self.depth == 1:
            for earlier in self._open:
                self._compute(earlier, None)
            self._compute(launch, sink)
        self._open.append(launch)

    def ready(self) -> bool:
        return not self._open or self._open[0].pause_s == 0.0

    def collect(self) -> list[Sampled]:
        """Raises BugError without an open launch; the oldest is over also when it raises."""
        if not self._open:
            raise BugError("collect was called without launch")
        launch = self._open.popleft()
        self._pause(launch.pause_s)
        return self._compute(launch, None)

    def close(self) -> None:
        self._pool.close()

    def _compute(self, launch: _Launch, sink: KVSink | None) -> list[Sampled]:
        if launch.sampled is not None:
            return launch.sampled
        runs: list[Run] = []
        last: list[tuple[RequestId, SampleSpec, int]] = []
        for row in launch.rows:
            tokens = row.tokens if row.follows is None else [launch.token(row.follows)]
            hashes = chain(self._state_before(row), tokens)
            runs += self._pool.runs(row.blocks, row.start, hashes, tokens)
            if row.sample is not None:
                last.append((row.request_id, row.sample, hashes[-1]))
        self._store(runs, launch, sink)
        self._note(launch.rows)
        launch.before = None
        launch.sampled = [self._sample(*row) for row in last]
        return launch.sampled

    def _pause(self, seconds: float) -> None:
        if seconds > 0.0:
            self._sleep(seconds)

    def _cost(self, rows: Sequence[Row]) -> float:
        config = self._config
        seconds = config.step_s
        for row in rows:
            if len(row.tokens) == 1:
                seconds += config.decode_seq_s
            else:
                seconds += config.prefill_token_s * len(row.tokens)
        return seconds

    def _state_before(self, row: Row) -> int:
        """The hash of the position before the row's first, as the pool has it."""
        if row.start == 0:
            return ROOT
        if self._known.get(row.request_id) == row.start:
            state = self._pool.last_hash(row.blocks, row.start - 1)
            if state is None:
                raise _corrupt(row, (row.start - 1) // self._config.block_size)
            return state
        return self._check(row)

    def _check(self, row: Row) -> int:
        """Follows the chain through all that the row builds on."""
        state, size = ROOT, self._config.block_size
        for number in range(-(-row.start // size)):
            count = min(size, row.start - number * size)
            found = self._pool.check(row.blocks[number], count, state)
            if found is None:
                raise _corrupt(row, number)
            state = found
        return state

    def _store(self, runs: Sequence[Run], launch: _Launch, sink: KVSink | None) -> None:
        layers = self._config.num_layers
        for layer in range(layers):
            self._pool.write(layer, runs)
            if sink is not None:
                self._pause(launch.pause_s / layers)
                sink.on_layer(layer)
        if sink is not None:
            launch.pause_s = 0.0

    def _note(self, rows: Sequence[Row]) -> None:
        # Nobody says when a request is over; forgetting one only costs another check.
        if len(self._known) > _MAX_KNOWN:
            self._known.clear()
        for row in rows:
            self._known[row.request_id] = row.start + len(row.tokens)

    def _sample(self, request_id: RequestId, spec: SampleSpec, state: int) -> Sampled:
        if spec.params.needs_history:
            history = chain(ROOT, [*spec.prompt, *spec.output])
            if len(spec.output) != spec.position or history[-1] != state:
                raise BugError(f"history of request {request_id} is not what its KV says")
        token = _choose(self._config, state, spec)
        count = spec.params.logprobs
        logprob = None if count is None else _logprob(self._config, state, token, count)
        return Sampled(request_id, token, logprob)


def _check_follows(row: Row, num_sampled: int) -> None:
    """``num_sampled`` is what the launch before chooses, if it is open."""
    if row.follows is None:
        known = min(row.tokens) >= 0
    else:
        known = 0 <= row.follows < num_sampled and list(row.tokens) == [PENDING]
    if not known:
        raise BugError(f"nothing tells the token of request {row.request_id}")


def _corrupt(row: Row, number: int) -> BugError:
    return BugError(
        f"KV of request {row.request_id} is wrong in block {row.blocks[number]}, number {number} "
        "of its sequence"
    )
