"""Small engines over the fake runner, and the copy that stands in for a connector."""

import ctypes
from collections.abc import Callable, Sequence

from splitserve.engine.api import Engine, PushSpan, Reservation, SeqOutput
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.engine.fake import FakeConfig, FakeRunner, fake_tokens
from splitserve.ids import RequestId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.sampling import SamplingParams

BLOCK = 4
MAX_STEPS = 20_000


def fake_config(**fields: object) -> FakeConfig:
    """Blocks of 4 tokens, 16 of them, chunks of up to 16 tokens."""
    defaults: dict[str, object] = {
        "vocab_size": 100,
        "token_low": 10,
        "block_size": BLOCK,
        "num_blocks": 16,
        "max_model_len": 256,
        "scheduler": SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=16),
    }
    return FakeConfig(**{**defaults, **fields})  # type: ignore[arg-type]


def make_engine(**fields: object) -> EngineCore:
    config = fake_config(**fields)
    return EngineCore(FakeRunner(config), config.scheduler)


def greedy(max_tokens: int, **fields: object) -> SamplingParams:
    values: dict[str, object] = {"seed": 0, "temperature": 0.0, "max_tokens": max_tokens}
    return SamplingParams(**{**values, **fields})  # type: ignore[arg-type]


def ask(
    request_id: str,
    tokens: Sequence[int],
    max_tokens: int = 4,
    *,
    priority: int = 0,
    salt: str = "",
    sampling: SamplingParams | None = None,
) -> GenerateRequest:
    return GenerateRequest(
        request_id=RequestId(request_id),
        token_ids=tuple(tokens),
        sampling=greedy(max_tokens) if sampling is None else sampling,
        priority=priority,
        cache_salt=salt,
    )


def expected(request: GenerateRequest, config: FakeConfig) -> list[int]:
    """What any engine over ``config`` must answer."""
    limit = min(request.sampling.max_tokens, config.max_model_len - len(request.token_ids))
    return fake_tokens(request.token_ids, limit, request.sampling, config)


def drain(engine: Engine, sink: "Recorder | None" = None) -> list[SeqOutput]:
    """Steps until there is nothing to do."""
    outputs: list[SeqOutput] = []
    for _ in range(MAX_STEPS):
        if not engine.has_work():
            return outputs
        outputs += engine.step(sink)
    raise AssertionError("the engine does not come to an end")


def tokens_of(outputs: Sequence[SeqOutput], request_id: str) -> list[int]:
    """The answer of one request, its indices checked to be without gap or repetition."""
    mine = [output for output in outputs if output.request_id == request_id]
    if mine:
        first = mine[0].index
        assert [output.index for output in mine] == list(range(first, first + len(mine)))
    return [output.token_id for output in mine]


def copy_block(source: Engine, from_block: int, target: Engine, to_block: int, layer: int) -> None:
    layout = source.describe().layout
    ctypes.memmove(
        target.regions()[0].address + target.describe().layout.offset(layer, to_block),
        source.regions()[0].address + layout.offset(layer, from_block),
        layout.block_bytes,
    )


class Recorder:
    """A KVSink that keeps what it is told; ``copy`` is called for each block of each layer."""

    def __init__(self, copy: Callable[[PushSpan, int], None] | None = None) -> None:
        self.steps: list[list[PushSpan]] = []
        self.layers: list[list[int]] = []
        self._copy = copy

    def begin(self, spans: Sequence[PushSpan]) -> None:
        self.steps.append(list(spans))
        self.layers.append([])

    def on_layer(self, layer: int) -> None:
        self.layers[-1].append(layer)
        if self._copy is not None:
            for span in self.steps[-1]:
                self._copy(span, layer)


def pusher(source: Engine, target: Engine, reservation: Reservation) -> Recorder:
    """Copies each layer's new blocks into the reservation while the source's step runs."""

    def copy(span: PushSpan, layer: int) -> None:
        for number, block in enumerate(span.blocks, start=span.first):
            if number >= reservation.skip_blocks:
                to_block = reservation.blocks[number - reservation.skip_blocks]
                copy_block(source, block, target, to_block, layer)

    return Recorder(copy)


def prefill_into(
    source: Engine, target: Engine, request: GenerateRequest, reservation: Reservation
) -> SeqOutput:
    """Computes the prompt on ``source``, pushes it and returns the first token."""
    source.add(request, push=True)
    outputs = drain(source, pusher(source, target, reservation))
    source.release(request.request_id)
    (output,) = [output for output in outputs if output.request_id == request.request_id]
    return output
