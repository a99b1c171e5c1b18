"""The runner on one GPU. It prepares a step while the device works on the one before.

A launch copies its arrays to the device, replays a graph or runs the forward pass, chooses tokens
and copies them back, all without waiting. The tokens stay on the device too, so that the next
launch can go on from them before the host knows them.
"""

import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from splitserve.engine.api import KVSink, ModelInfo, Row, Sampled, SampleSpec
from splitserve.engine.config import EngineConfig
from splitserve.engine.cuda.attention import Attention, Stage, StepAttention
from splitserve.engine.cuda.decoder import CudaDecoder
from splitserve.engine.cuda.graphs import WRAPPER_BYTES, DecodeGraphs, ladder
from splitserve.engine.cuda.memory import MemoryPlan, plan_memory
from splitserve.engine.cuda.pool import CudaPool
from splitserve.engine.cuda.sampler import Logprobs, Sampler
from splitserve.engine.cuda.step import BlockTables, Step, plan_step
from splitserve.engine.cuda.weights import CudaDummyWeights
from splitserve.engine.grammar.store import read_text
from splitserve.engine.models.config import DecoderConfig, read_decoder_config
from splitserve.engine.opening import (
    check_config,
    choose_dtype,
    content_hash,
    kv_layout,
    max_model_len,
    stored_weights,
)
from splitserve.errors import BugError, ConfigError, UnavailableError
from splitserve.ids import RequestId
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.resolve import resolve
from splitserve.protocol.memory import MemoryRegion
from splitserve.protocol.sampling import SamplingParams

log = logging.getLogger(__name__)

DEPTH: Final = 2

_GRAPH_BYTES: Final = 512 << 20
"""What the largest graph's intermediate results and the graphs themselves take."""

_STAGE_ITEMS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Launch:
    """``done`` passes once ``tokens`` (pinned) and ``logprobs`` are on the host."""

    requests: tuple[RequestId, ...]
    tokens: Tensor
    logprobs: Logprobs | None
    done: torch.cuda.Event


class CudaRunner:
    """See ``engine.api.Runner``."""

    def __init__(self, config: EngineConfig) -> None:
        """Loads the model, sizes the pool, captures the graphs.

        Raises ConfigError for settings or a model that cannot be run, and UnavailableError when
        the model cannot be fetched or memory is short.
        """
        check_config(config)
        self._device = _device(config.device)
        torch.cuda.set_device(self._device)
        # What is computed on the host here is too small to share among threads.
        torch.set_num_threads(1)
        folder = resolve(config.model)
        model = read_decoder_config(folder.config())
        self._dtype = choose_dtype(config.dtype, folder.config())
        if self._dtype != torch.bfloat16:
            raise ConfigError(f"dtype {config.dtype!r} is not supported on a GPU (bfloat16)")
        self._block_size = config.block_size
        self._vocab_size = model.vocab_size
        self._tokenizer = folder.path / "tokenizer.json"
        self._max_rows = config.scheduler.max_num_seqs
        self._open: deque[_Launch] = deque()
        try:
            with torch.inference_mode():
                self._load(config, folder, model)
        except torch.cuda.OutOfMemoryError as error:
            raise UnavailableError(
                f"{self._device} has too little memory for {config.model}: {_first_line(error)}"
            ) from error
        self._info = ModelInfo(
            name=folder.served_name,
            content_hash=content_hash(config, folder),
            dtype=self._pool.layout.dtype,
            vocab_size=model.vocab_size,
            max_model_len=max_model_len(config, model),
            eos_token_ids=folder.eos_token_ids(),
            layout=self._pool.layout,
        )

    @property
    def depth(self) -> int:
        return DEPTH

    def describe(self) -> ModelInfo:
        return self._info

    def tokenizer_json(self) -> str | None:
        return read_text(self._tokenizer)

    def regions(self) -> tuple[MemoryRegion, ...]:
        return (self._pool.region(),)

    @torch.inference_mode()
    def launch(self, rows: Sequence[Row], sink: KVSink | None) -> None:
        if len(self._open) >= DEPTH:
            raise BugError(f"{DEPTH} launches are open already")
        torch.cuda.set_device(self._device)
        step = plan_step(rows, self._block_size, self._tables)
        asked = [(row.request_id, row.sample) for row in rows if row.sample is not None]
        self._staged.synchronize()
        self._stage.clear()
        scores = self._graph(step) if sink is None and self._graphs.fits(step) else None
        if scores is None:
            scores = self._eager(step, self._pool.layers, sink)
        self._finish(scores, [request for request, _ in asked], [spec for _, spec in asked])

    def ready(self) -> bool:
        return not self._open or bool(self._open[0].done.query())

    def collect(self) -> list[Sampled]:
        if not self._open:
            raise BugError("collect was called without launch")
        launch = self._open.popleft()
        launch.done.synchronize()
        logprobs = {} if launch.logprobs is None else launch.logprobs.read()
        return [
            Sampled(request, token, logprobs.get(row))
            for row, (request, token) in enumerate(
                zip(launch.requests, launch.tokens.tolist(), strict=True)
            )
        ]

    def close(self) -> None:
        self._open.clear()
        self._pool.close()

    # One step

    def _graph(self, step: Step) -> Tensor:
        rung = self._graphs.plan(step, self._stage)
        self._staged.record()
        return self._graphs.run(rung, step.tokens)

    def _eager(self, step: Step, layers: Sequence[Tensor], sink: KVSink | None) -> Tensor | None:
        records = self._stage.ints(step.records).to(self._device, non_blocking=True)
        sampled = self._stage.ints(step.sampled).to(self._device, non_blocking=True)
        self._attention.plan(step, self._stage)
        self._staged.record()
        return self._decoder.forward(records, self._chosen, layers, self._attention, sampled, sink)

    def _finish(
        self, scores: Tensor | None, requests: list[RequestId], specs: list[SampleSpec]
    ) -> None:
        """Chooses tokens, keeps them for the next launch, starts their way to the host."""
        host = self._results[0][: len(requests)]
        self._results.rotate(1)
        logprobs = None
        if scores is not None:
            tokens = self._sampler.choose(scores, specs)
            self._chosen[: len(requests)] = tokens
            host.copy_(tokens, non_blocking=True)
            logprobs = self._sampler.logprobs(scores, tokens, specs)
        done = torch.cuda.Event()
        done.record()
        self._open.append(_Launch(tuple(requests), host, logprobs, done))

    # Start

    def _load(self, config: EngineConfig, folder: ModelFolder, model: DecoderConfig) -> None:
        started = time.monotonic()
        device = self._device
        free, total = torch.cuda.mem_get_info(device)
        others = total - free - torch.cuda.memory_reserved(device)
        weights = (
            CudaDummyWeights(config.seed, device)
            if config.load_format == "dummy"
            else stored_weights(folder, model)
        )
        self._decoder = CudaDecoder(model, weights, self._dtype, device)
        loaded = torch.cuda.memory_allocated(device)
        common = Attention(model, self._dtype, config.block_size, device)
        self._attention = StepAttention(common)
        self._sampler = Sampler(device)
        self._tables = BlockTables(2 * self._max_rows)
        self._stage = Stage(_STAGE_ITEMS)
        self._staged = torch.cuda.Event()
        self._chosen = torch.zeros(self._max_rows, dtype=torch.int32, device=device)
        self._results = deque(
            torch.zeros(self._max_rows, dtype=torch.int32, pin_memory=True) for _ in range(DEPTH)
        )
        self._rehearse(config, model)
        plan = self._plan_memory(config, total, others, loaded)
        layout = kv_layout(model, self._dtype, config.block_size, plan.pool)
        self._pool = CudaPool(layout, self._dtype, device)
        most_blocks = self._max_rows * -(-max_model_len(config, model) // config.block_size)
        self._graphs = DecodeGraphs(
            self._decoder,
            common,
            self._pool.layers,
            self._chosen,
            model.vocab_size,
            self._max_rows,
            most_blocks,
        )
        self._graphs.capture(self._stage)
        log.info(
            "memory on %s in GiB: %s; %d KV tokens in %d blocks, %d graphs; ready in %.1f s",
            device,
            plan,
            layout.num_blocks * layout.block_size,
            layout.num_blocks,
            len(self._graphs.rungs),
            time.monotonic() - started,
        )

    def _plan_memory(
        self, config: EngineConfig, total: int, others: int, loaded: int
    ) -> MemoryPlan:
        return plan_memory(
            total=total,
            others=others,
            weights=loaded,
            work=torch.cuda.memory_reserved(self._device) - loaded,
            graphs=_GRAPH_BYTES + WRAPPER_BYTES * len(ladder(self._max_rows)),
            utilization=config.gpu_memory_utilization,
            asked=config.kv_cache_memory_bytes,
        )

    def _rehearse(self, config: EngineConfig, model: DecoderConfig) -> None:
        """A largest step, so that torch's allocator has what one needs and kernels are compiled."""
        budget = config.scheduler.max_num_batched_tokens
        longest = max_model_len(config, model)
        lengths = [min(longest, budget - at) for at in range(0, budget - 1, longest)]
        rows, first = [], 0
        for number, length in enumerate([1, *lengths]):
            count = -(-length // config.block_size)
            rows.append(
                Row(
                    RequestId(f"rehearsal-{number}"),
                    tokens=[0] * length,
                    start=0,
                    blocks=list(range(first, first + count)),
                    sample=_DRAWN,
                )
            )
            first += count
        layout = kv_layout(model, self._dtype, config.block_size, 1 << 62).with_blocks(first)
        pool = CudaPool(layout, self._dtype, self._device)
        try:
            step = plan_step(rows, config.block_size, BlockTables(len(rows)))
            scores = self._eager(step, pool.layers, None)
            torch.cuda.synchronize()
        finally:
            pool.close()
        self._stage.clear()
        shape = (self._max_rows, model.vocab_size)
        scores = torch.zeros(shape, dtype=self._dtype, device=self._device)
        self._sampler.choose(scores, [_DRAWN] * self._max_rows)
        torch.cuda.synchronize()


_DRAWN: Final = SampleSpec(
    SamplingParams(seed=0, max_tokens=1, temperature=0.9, top_p=0.9, top_k=9), 0
)


def _device(name: str) -> torch.device:
    """Raises ConfigError when there is no such GPU."""
    if not torch.cuda.is_available():
        raise ConfigError(
            f"device {name}: torch sees no GPU here; use device cpu, or install a driver and the "
            "CUDA build of torch"
        )
    kind, _, number = name.partition(":")
    index = int(number or 0)
    count = torch.cuda.device_count()
    if kind != "cuda" or index >= count:
        raise ConfigError(f"device {name}: this machine has cuda:0 to cuda:{count - 1}")
    return torch.device("cuda", index)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
