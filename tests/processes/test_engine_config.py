"""From a worker's settings to its engine's."""

import pytest

from splitserve.engine.config import EngineConfig
from splitserve.processes.worker import engine_config
from splitserve.roles.config import WorkerConfig


def made(**settings: object) -> EngineConfig:
    config = WorkerConfig(
        model="m",
        role="colocated",
        name="n",
        listen="unix:/x",
        **settings,  # type: ignore[arg-type]
    )
    engine = engine_config(config)
    assert isinstance(engine, EngineConfig)
    return engine


@pytest.mark.parametrize(
    ("device", "resolved", "sizes"),
    [
        ("cpu", "cpu", (64, 512, 1 << 30)),
        ("cuda", "cuda:0", (256, 8192, None)),
        ("cuda:1", "cuda:1", (256, 8192, None)),
    ],
)
def test_sizes_that_nobody_asked_for_follow_from_the_device(
    device: str, resolved: str, sizes: tuple[int, int, int | None]
) -> None:
    engine = made(device=device)
    scheduler = engine.scheduler
    assert engine.device == resolved
    assert (
        scheduler.max_num_seqs,
        scheduler.max_num_batched_tokens,
        engine.kv_cache_memory_bytes,
    ) == sizes


def test_what_was_asked_for_reaches_the_engine() -> None:
    engine = made(device="cuda", kv_cache_memory_bytes=5, gpu_memory_utilization=0.5)
    assert (engine.kv_cache_memory_bytes, engine.gpu_memory_utilization) == (5, 0.5)
