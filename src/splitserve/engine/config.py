"""Limits of one engine. Names are vLLM's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """``max_num_batched_tokens`` is the chunk budget of one step (decode tokens count too)."""

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    enable_prefix_caching: bool = True


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What to load and how large. ``kv_cache_memory_bytes`` bounds the pool.

    ``max_model_len`` None takes the model's own. ``threads`` is the size of the compute pool.
    ``load_format``: ``auto`` (weights from the folder) or ``dummy`` (random, seeded).
    """

    model: str
    dtype: str = "bfloat16"
    device: str = "cpu"
    block_size: int = 16
    kv_cache_memory_bytes: int = 1 << 30
    max_model_len: int | None = None
    threads: int = 1
    load_format: str = "auto"
    seed: int = 0
    scheduler: SchedulerConfig = SchedulerConfig()
