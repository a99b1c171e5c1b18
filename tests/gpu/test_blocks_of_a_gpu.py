"""The KV tier behind an engine on a GPU: what it brings is what was computed, bit for bit."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from gpu_rig import VOCAB, open_runner, save_model

from fake_cuda_driver import cuda_copier
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.ids import RequestId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.protocol.sampling import SamplingParams
from splitserve.roles.tiering import Tiering
from splitserve.tier.config import TierConfig
from splitserve.tier.opening import Tier, open_tier

pytestmark = pytest.mark.gpu

PROMPT = [random.Random(3).randrange(3, VOCAB) for _ in range(16 * 9 + 5)]
WHOLE = 16 * 9
"""Tokens of the prompt in full blocks."""

WIDE = KVLayout("bfloat16", 28, 4, 128, 16, 256, 2)
"""Blocks of a 7B model: 896 KiB in 28 pieces."""


@dataclass
class Worker:
    engine: EngineCore
    tier: Tier
    tiering: Tiering

    def answer(self, name: str) -> list[int]:
        """To the prompt, with what the cache has of it, else the tier; all new blocks are kept."""
        params = SamplingParams(seed=0, temperature=0.0, max_tokens=12)
        request = GenerateRequest(RequestId(name), tuple(PROMPT), params)
        if not self.tiering.wait_for(request, lambda: self.engine.add(request)):
            self.engine.add(request)
        tokens: list[int] = []
        while self.tiering.pending or self.engine.has_work():
            self.tiering.tick()
            tokens += [output.token_id for output in self.engine.step()]
        self.tiering.tick()
        while self.tiering.pending:
            time.sleep(0.0005)  # lets the tier's thread run
            self.tiering.tick()
        return tokens


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen2")
    save_model("Qwen2", path)
    return path


@pytest.fixture
def make_worker(model: Path, tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    """Workers that keep their blocks on one disk."""
    workers: list[Worker] = []

    def make() -> Worker:
        config = SchedulerConfig(max_num_seqs=16, max_num_batched_tokens=1024)
        engine = EngineCore(open_runner(model, scheduler=config), config)
        info = engine.describe()
        (region,) = engine.regions()
        tier = open_tier(
            TierConfig(disk_path=tmp_path / "kv", disk_bytes=1 << 28),
            info.content_hash,
            info.layout,
            lambda: cuda_copier(region, info.layout),
        )
        assert tier is not None
        workers.append(Worker(engine, tier, Tiering(engine, tier.thread, time.monotonic)))
        return workers[-1]

    yield make
    for worker in workers:
        worker.tier.close()
        worker.engine.close()


def test_another_worker_goes_on_from_what_the_tier_has(make_worker: Callable[[], Worker]) -> None:
    first, second = make_worker(), make_worker()
    first.answer("computed")
    cached = first.answer("cached")
    assert second.answer("brought") == cached
    assert second.engine.stats().prefix_hit_tokens == WHOLE
    assert second.engine.stats().computed_tokens == len(PROMPT) - WHOLE
    assert second.engine.counts().idle


def test_copies_are_right_while_the_engines_stream_is_busy() -> None:
    """Blocks go out and come in on another stream, whatever the default one works on."""
    from device_pools import DeviceSource

    pool = DeviceSource(WIDE)
    pool.fill()
    before = pool.read()
    copier = cuda_copier(MemoryRegion(pool.region.address, WIDE.pool_bytes, "cuda:0"), WIDE)
    busy = torch.randn(4096, 4096, device="cuda:0")
    for _ in range(200):
        busy = busy @ busy
    size = WIDE.block_bytes
    for source, target in ((0, 200), (255, 7), (13, 14)):
        held = [bytes(part) for part in copier.to_host(source)]
        for layer, part in enumerate(held):
            start = WIDE.offset(layer, source)
            assert part == before[start : start + size]
        for data, part in zip(held, copier.landing(target), strict=True):
            part[:] = data
        copier.from_host(target)
    copier.close()
    torch.cuda.synchronize()
    after = bytearray(before)
    for source, target in ((0, 200), (255, 7), (13, 14)):
        for layer in range(WIDE.num_layers):
            start, end = WIDE.offset(layer, source), WIDE.offset(layer, target)
            after[end : end + size] = before[start : start + size]
    assert pool.read() == bytes(after)
    pool.close()
