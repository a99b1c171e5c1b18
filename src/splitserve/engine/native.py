"""The runner that computes with PyTorch, on the CPU."""

from collections.abc import Sequence
from contextlib import ExitStack, closing

import torch

from splitserve.engine.api import KVSink, ModelInfo, Row, Sampled
from splitserve.engine.config import EngineConfig
from splitserve.engine.grammar.store import read_text
from splitserve.engine.kv.pool import KVPool
from splitserve.engine.models.config import DecoderConfig, read_decoder_config
from splitserve.engine.models.decoder import Decoder
from splitserve.engine.models.weights import DummyWeights, Weights
from splitserve.engine.opening import (
    check_config,
    choose_dtype,
    content_hash,
    kv_layout,
    max_model_len,
    shard_layouts,
    stored_weights,
)
from splitserve.engine.runner.memory import keep_freed_memory
from splitserve.engine.runner.plan import plan_batch
from splitserve.engine.runner.sampling import choose
from splitserve.errors import BugError, ConfigError
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.resolve import resolve
from splitserve.protocol.memory import KVLayout, MemoryRegion


class NativeRunner:
    """Runs each step to its end within ``launch``."""

    def __init__(self, config: EngineConfig) -> None:
        """Loads the model. Raises ConfigError for settings or a model that cannot be run, and
        UnavailableError when the model cannot be fetched or memory is short."""
        check_config(config)
        pool_bytes = _pool_bytes(config)
        # Weights are read in pieces too small to share: waking threads for each took 3 to 6 times
        # as long on two busy cores.
        torch.set_num_threads(1)
        folder = resolve(config.model)
        model = read_decoder_config(folder.config())
        self._dtype = choose_dtype(config.dtype, folder.config())
        layout = kv_layout(model, self._dtype, config.block_size, pool_bytes)
        shards = shard_layouts(layout, model, config.tensor_parallel_size)
        self._info = ModelInfo(
            name=folder.served_name,
            content_hash=content_hash(config, folder),
            dtype=layout.dtype,
            vocab_size=model.vocab_size,
            max_model_len=max_model_len(config, model),
            eos_token_ids=folder.eos_token_ids(),
            layout=layout,
        )
        self._tokenizer = folder.path / "tokenizer.json"
        with torch.inference_mode():
            weights = _weights(config, folder, model)
            self._decoder = Decoder(model, weights, self._dtype, len(shards))
        keep_freed_memory()
        torch.set_num_threads(config.threads)
        self._pools = _open_pools(shards, self._dtype)
        self._sampled: list[Sampled] | None = None

    @property
    def depth(self) -> int:
        return 1

    def describe(self) -> ModelInfo:
        return self._info

    def tokenizer_json(self) -> str | None:
        return read_text(self._tokenizer)

    def regions(self) -> tuple[MemoryRegion, ...]:
        return tuple(pool.region() for pool in self._pools)

    @torch.inference_mode()
    def launch(self, rows: Sequence[Row], sink: KVSink | None) -> None:
        if self._sampled is not None:
            raise BugError("launch was called again before collect")
        # Shards differ in which heads they hold, not in how many: one plan serves them all.
        batch = plan_batch(rows, self._pools[0].layout, self._dtype)
        layers = list(zip(*(pool.layers for pool in self._pools), strict=True))
        logits = self._decoder.forward(batch, layers, sink)
        asked = [(row.request_id, row.sample) for row in rows if row.sample is not None]
        choices = [] if logits is None else choose(logits, [spec for _, spec in asked])
        self._sampled = [
            Sampled(request_id, token, logprob)
            for (request_id, _), (token, logprob) in zip(asked, choices, strict=True)
        ]

    def ready(self) -> bool:
        return True

    def collect(self) -> list[Sampled]:
        if self._sampled is None:
            raise BugError("collect was called without launch")
        sampled, self._sampled = self._sampled, None
        return sampled

    def close(self) -> None:
        for pool in self._pools:
            pool.close()


def _open_pools(shards: Sequence[KVLayout], dtype: torch.dtype) -> tuple[KVPool, ...]:
    """All of them or, when memory is short, none."""
    with ExitStack() as opened:
        pools = [opened.enter_context(closing(KVPool(shard, dtype))) for shard in shards]
        opened.pop_all()
    return tuple(pools)


def _pool_bytes(config: EngineConfig) -> int:
    if config.device != "cpu":
        raise ConfigError(f"device {config.device!r}: this runner runs on the CPU")
    if config.kv_cache_memory_bytes is None:
        raise ConfigError("kv_cache_memory_bytes is not set: a pool on the CPU needs a size")
    return config.kv_cache_memory_bytes


def _weights(config: EngineConfig, folder: ModelFolder, model: DecoderConfig) -> Weights:
    if config.load_format == "dummy":
        return DummyWeights(config.seed)
    return stored_weights(folder, model)
