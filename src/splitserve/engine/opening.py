"""What every torch runner works out from its configuration and the model's folder."""

from typing import Any, Final

import torch

from splitserve.engine.config import EngineConfig
from splitserve.engine.models.config import DecoderConfig
from splitserve.engine.models.gguf import GGUFWeights
from splitserve.engine.models.weights import SafetensorsWeights, Weights
from splitserve.errors import ConfigError
from splitserve.modelstore.folder import ModelFolder
from splitserve.protocol.memory import KVLayout

_DTYPES: Final = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def check_config(config: EngineConfig) -> None:
    """Raises ConfigError for sizes and names that no runner takes."""
    if config.threads < 1:
        raise ConfigError(f"threads is {config.threads}: give at least 1")
    if config.block_size < 1:
        raise ConfigError(f"block_size is {config.block_size}: give at least 1")
    if config.load_format not in ("auto", "dummy"):
        raise ConfigError(f"load_format {config.load_format!r} is unknown (auto, dummy)")
    if config.tensor_parallel_size != 1 and config.device != "cpu":
        raise ConfigError(
            f"tensor_parallel_size is {config.tensor_parallel_size}: this engine has one shard on "
            'a GPU; set it to 1, or engine = "vllm"'
        )


def choose_dtype(asked: str, config: dict[str, Any]) -> torch.dtype:
    """``auto`` is the checkpoint's own; float16 ones run in bfloat16, which has their range."""
    if asked == "auto":
        stored = config.get("dtype") or config.get("torch_dtype")
        return torch.float32 if stored == "float32" else torch.bfloat16
    if asked not in _DTYPES:
        raise ConfigError(f"dtype {asked!r} is not supported (auto, {', '.join(_DTYPES)})")
    return _DTYPES[asked]


def kv_layout(model: DecoderConfig, dtype: torch.dtype, block_size: int, nbytes: int) -> KVLayout:
    """As many blocks as fit into ``nbytes``. Raises ConfigError when that is none."""
    one = KVLayout(
        dtype=str(dtype).removeprefix("torch."),
        num_layers=model.num_layers,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        block_size=block_size,
        num_blocks=1,
        itemsize=dtype.itemsize,
    )
    count = nbytes // one.pool_bytes
    if count < 1:
        raise ConfigError(
            f"kv_cache_memory_bytes is {nbytes}: one block of this model takes {one.pool_bytes}"
        )
    return one.with_blocks(count)


def shard_layouts(layout: KVLayout, model: DecoderConfig, count: int) -> tuple[KVLayout, ...]:
    """Of ``layout``, that of each shard's pool. Raises ConfigError unless the KV heads and the MLP
    can be shared out evenly."""
    shards = layout.shards(count)
    if model.intermediate_size % count:
        raise ConfigError(
            f"tensor_parallel_size is {count}: give a number that divides intermediate_size "
            f"({model.intermediate_size}) too"
        )
    return shards


def max_model_len(config: EngineConfig, model: DecoderConfig) -> int:
    """Raises ConfigError for more than the model allows."""
    asked = config.max_model_len
    if asked is None:
        return model.max_positions
    if not 0 < asked <= model.max_positions:
        raise ConfigError(f"max_model_len is {asked}: the model allows 1 to {model.max_positions}")
    return asked


def content_hash(config: EngineConfig, folder: ModelFolder) -> str:
    """Made-up weights depend on the seed and on whose generator made them."""
    found = folder.content_hash()
    if config.load_format != "dummy":
        return found
    kind = config.device.partition(":")[0]
    return f"{found}-dummy-{kind}-{config.seed}"


def stored_weights(folder: ModelFolder, model: DecoderConfig) -> Weights:
    """Raises ConfigError when the folder has none."""
    if folder.format == "safetensors":
        return SafetensorsWeights(folder.weights)
    if folder.format == "gguf":
        return GGUFWeights(folder.weights[0], model.head_dim)
    raise ConfigError(f"{folder.path} holds no weights: add them, or set load_format to dummy")
