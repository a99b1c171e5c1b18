"""From a worker's settings to its engine's."""

from pathlib import Path

import pytest

from flow.tiny_model import make_model_folder
from splitserve.engine.config import EngineConfig
from splitserve.engine.fake import FakeConfig
from splitserve.processes.worker import engine_config
from splitserve.roles.config import WorkerConfig


def config_for(model: str = "m", **settings: object) -> EngineConfig | FakeConfig:
    config = WorkerConfig(
        model=model,
        role="colocated",
        name="n",
        listen="unix:/x",
        **settings,  # type: ignore[arg-type]
    )
    return engine_config(config)


def made(**settings: object) -> EngineConfig:
    engine = config_for(**settings)  # type: ignore[arg-type]
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


def test_shards_reach_either_engine(tmp_path: Path) -> None:
    folder = str(make_model_folder(tmp_path / "tiny"))
    assert made(tensor_parallel_size=2).tensor_parallel_size == 2
    fake = config_for(folder, engine="fake", tensor_parallel_size=2, fake_num_kv_heads=4)
    assert isinstance(fake, FakeConfig)
    assert (fake.tensor_parallel_size, fake.num_kv_heads) == (2, 4)
