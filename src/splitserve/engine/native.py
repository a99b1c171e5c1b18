"""The runner that computes with PyTorch, on the CPU."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import torch

from splitserve.engine.api import KVSink, ModelInfo, Row, Sampled
from splitserve.engine.config import EngineConfig
from splitserve.engine.grammar.store import read_text
from splitserve.engine.kv.pool import KVPool
from splitserve.engine.models.config import DecoderConfig, read_decoder_config
from splitserve.engine.models.decoder import Decoder
from splitserve.engine.models.gguf import GGUFWeights
from splitserve.engine.models.weights import DummyWeights, SafetensorsWeights, Weights
from splitserve.engine.runner.memory import keep_freed_memory
from splitserve.engine.runner.plan import plan_batch
from splitserve.engine.runner.sampling import choose
from splitserve.errors import BugError, ConfigError
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.resolve import resolve
from splitserve.protocol.memory import KVLayout, MemoryRegion

_DTYPES: Final = {"bfloat16": torch.bfloat16, "float32": torch.float32}


class NativeRunner:
    """Runs each step to its end within ``launch``."""

    def __init__(self, config: EngineConfig) -> None:
        """Loads the model. Raises ConfigError for settings or a model that cannot be run, and
        UnavailableError when the model cannot be fetched or memory is short."""
        _check(config)
        # Weights are read in pieces too small to share: waking threads for each took 3 to 6 times
        # as long on two busy cores.
        torch.set_num_threads(1)
        folder = resolve(config.model)
        model = read_decoder_config(folder.config())
        self._dtype = _dtype(config.dtype, folder.config())
        layout = _layout(config, model, self._dtype)
        self._info = ModelInfo(
            name=folder.served_name,
            content_hash=_content_hash(config, folder),
            dtype=layout.dtype,
            vocab_size=model.vocab_size,
            max_model_len=_max_model_len(config, model),
            eos_token_ids=folder.eos_token_ids(),
            layout=layout,
        )
        self._tokenizer = folder.path / "tokenizer.json"
        with torch.inference_mode():
            self._decoder = Decoder(model, _weights(config, folder, model), self._dtype)
        keep_freed_memory()
        torch.set_num_threads(config.threads)
        self._pool = KVPool(layout, self._dtype)
        self._sampled: list[Sampled] | None = None

    def describe(self) -> ModelInfo:
        return self._info

    def tokenizer_json(self) -> str | None:
        return read_text(self._tokenizer)

    def regions(self) -> tuple[MemoryRegion, ...]:
        return (self._pool.region(),)

    @torch.inference_mode()
    def launch(self, rows: Sequence[Row], sink: KVSink | None) -> None:
        if self._sampled is not None:
            raise BugError("launch was called again before collect")
        batch = plan_batch(rows, self._info.layout, self._dtype)
        logits = self._decoder.forward(batch, self._pool.layers, sink)
        asked = [(row.request_id, row.sample) for row in rows if row.sample is not None]
        choices = [] if logits is None else choose(logits, [spec for _, spec in asked])
        self._sampled = [
            Sampled(request_id, token, logprob)
            for (request_id, _), (token, logprob) in zip(asked, choices, strict=True)
        ]

    def collect(self) -> list[Sampled]:
        if self._sampled is None:
            raise BugError("collect was called without launch")
        sampled, self._sampled = self._sampled, None
        return sampled

    def close(self) -> None:
        self._pool.close()


def _check(config: EngineConfig) -> None:
    if config.device != "cpu":
        raise ConfigError(
            f"device {config.device!r}: this build's engine runs on the CPU (device cpu); "
            "a later release brings the GPU engine"
        )
    if config.threads < 1:
        raise ConfigError(f"threads is {config.threads}: give at least 1")
    if config.block_size < 1:
        raise ConfigError(f"block_size is {config.block_size}: give at least 1")
    if config.load_format not in ("auto", "dummy"):
        raise ConfigError(f"load_format {config.load_format!r} is unknown (auto, dummy)")


def _dtype(asked: str, config: dict[str, Any]) -> torch.dtype:
    """``auto`` is the checkpoint's own; float16 ones run in bfloat16, which has their range."""
    if asked == "auto":
        stored = config.get("dtype") or config.get("torch_dtype")
        return torch.float32 if stored == "float32" else torch.bfloat16
    if asked not in _DTYPES:
        raise ConfigError(f"dtype {asked!r} is not supported (auto, {', '.join(_DTYPES)})")
    return _DTYPES[asked]


def _layout(config: EngineConfig, model: DecoderConfig, dtype: torch.dtype) -> KVLayout:
    one = KVLayout(
        dtype=str(dtype).removeprefix("torch."),
        num_layers=model.num_layers,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        block_size=config.block_size,
        num_blocks=1,
        itemsize=dtype.itemsize,
    )
    count = config.kv_cache_memory_bytes // one.pool_bytes
    if count < 1:
        raise ConfigError(
            f"kv_cache_memory_bytes is {config.kv_cache_memory_bytes}: one block of this model "
            f"takes {one.pool_bytes}"
        )
    return msgspec.structs.replace(one, num_blocks=count)


def _max_model_len(config: EngineConfig, model: DecoderConfig) -> int:
    asked = config.max_model_len
    if asked is None:
        return model.max_positions
    if not 0 < asked <= model.max_positions:
        raise ConfigError(f"max_model_len is {asked}: the model allows 1 to {model.max_positions}")
    return asked


def _content_hash(config: EngineConfig, folder: ModelFolder) -> str:
    found = folder.content_hash()
    return f"{found}-dummy-{config.seed}" if config.load_format == "dummy" else found


def _weights(config: EngineConfig, folder: ModelFolder, model: DecoderConfig) -> Weights:
    if config.load_format == "dummy":
        return DummyWeights(config.seed)
    if folder.format == "safetensors":
        return SafetensorsWeights(folder.weights)
    if folder.format == "gguf":
        return GGUFWeights(folder.weights[0], model.head_dim)
    raise ConfigError(f"{folder.path} holds no weights: add them, or set load_format to dummy")
