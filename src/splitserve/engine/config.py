"""Limits of one engine. Names are vLLM's."""

from dataclasses import dataclass

from splitserve.engine.device import DEFAULTS


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """``max_num_batched_tokens`` is the chunk budget of one step (decode tokens count too)."""

    max_num_seqs: int = DEFAULTS["cpu"].max_num_seqs
    max_num_batched_tokens: int = DEFAULTS["cpu"].max_num_batched_tokens
    enable_prefix_caching: bool = True


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What to load, where, and how large. ``device`` is ``cpu`` or ``cuda:N``.

    ``kv_cache_memory_bytes`` bounds the pool; None, on a GPU only, takes what is free there below
    ``gpu_memory_utilization``: the share of all its memory that this engine may use (0 < x <= 1).
    ``tensor_parallel_size`` shards share out the KV heads and the MLP, each with a pool of its own;
    the bytes are of all pools together. On the CPU they are computed one after the other, by the
    same threads: what it buys is the layout of memory, not time.
    ``max_model_len`` None takes the model's own. ``threads`` is the size of the compute pool.
    ``load_format``: ``auto`` (weights from the folder) or ``dummy`` (random, seeded).
    """

    model: str
    dtype: str = "bfloat16"
    device: str = "cpu"
    block_size: int = 16
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    tensor_parallel_size: int = 1
    max_model_len: int | None = None
    threads: int = 1
    load_format: str = "auto"
    seed: int = 0
    scheduler: SchedulerConfig = SchedulerConfig()
