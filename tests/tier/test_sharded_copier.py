"""Blocks of pools that share out the heads are those of one pool, in any number of shards."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tier_rig import digest

from shared_pools import ShardedPools
from splitserve.errors import BugError, UnavailableError
from splitserve.protocol.memory import KVLayout
from splitserve.tier.config import TierConfig
from splitserve.tier.copier import BlockCopier, HostBlockCopier, ShardedBlockCopier
from splitserve.tier.opening import Tier, open_tier
from splitserve.tier.worker_thread import Loaded, Stored

LAYOUT = KVLayout("bfloat16", 3, 6, 4, 2, 5, 2)
SHARDS = [1, 2, 3, 6]


def copier_of(pools: ShardedPools, count: int) -> BlockCopier:
    """As a worker with that number of shards has it."""
    shares = zip(pools.regions, LAYOUT.shards(count), strict=True)
    shards = [HostBlockCopier(region, share) for region, share in shares]
    return shards[0] if count == 1 else ShardedBlockCopier(shards)


def some_bytes(seed: int, count: int = LAYOUT.pool_bytes) -> bytes:
    return hashlib.shake_256(bytes([seed])).digest(count)


def block_of(pool: bytes, block: int) -> bytes:
    """As one pool of all heads holds it."""
    starts = [LAYOUT.offset(layer, block) for layer in range(LAYOUT.num_layers)]
    return b"".join(pool[start : start + LAYOUT.block_bytes] for start in starts)


@pytest.fixture
def make() -> Iterator[Callable[[int], ShardedPools]]:
    made: list[ShardedPools] = []

    def one(count: int) -> ShardedPools:
        made.append(ShardedPools(LAYOUT, count))
        return made[-1]

    yield one
    for pools in made:
        pools.close()


Make = Callable[[int], ShardedPools]


@pytest.mark.parametrize("count", SHARDS)
def test_a_block_has_the_bytes_that_it_has_in_one_pool(make: Make, count: int) -> None:
    pools = make(count)
    pools.write(some_bytes(1))
    copier = copier_of(pools, count)
    for block in range(LAYOUT.num_blocks):
        assert b"".join(copier.to_host(block)) == block_of(some_bytes(1), block)
    del copier
    assert pools.read() == some_bytes(1)


@pytest.mark.parametrize("count", SHARDS)
def test_what_lands_in_a_block_is_in_every_pool_and_in_no_other_block(
    make: Make, count: int
) -> None:
    pools = make(count)
    pools.write(some_bytes(1))
    sent = block_of(some_bytes(2), 0)
    left = memoryview(sent)
    copier = copier_of(pools, count)
    for part in copier.landing(3):
        part[:], left = left[: len(part)], left[len(part) :]
    copier.from_host(3)
    assert not left
    found = [block_of(pools.read(), block) for block in range(LAYOUT.num_blocks)]
    assert found == [
        sent if block == 3 else block_of(some_bytes(1), block) for block in range(LAYOUT.num_blocks)
    ]


@pytest.fixture
def opened(tmp_path: Path, make: Make) -> Iterator[Callable[[int], tuple[Tier, ShardedPools]]]:
    """Makes workers of one host, by number of shards."""
    tiers: list[Tier] = []
    (tmp_path / "shm").mkdir()

    def one(count: int) -> tuple[Tier, ShardedPools]:
        pools = make(count)
        config = TierConfig(0, tmp_path / "disk", 1 << 20)
        tier = open_tier(
            config, "a model", LAYOUT, lambda: copier_of(pools, count), tmp_path / "shm"
        )
        assert tier is not None
        tiers.append(tier)
        return tier, pools

    yield one
    for tier in tiers:
        tier.close()


def end(tier: Tier) -> Loaded | Stored:
    while not (ended := tier.thread.poll()):
        time.sleep(0.0005)  # lets the other thread run
    (only,) = ended
    return only


@pytest.mark.parametrize(("writer", "reader"), [(1, 2), (2, 1), (2, 3), (6, 6)])
def test_a_block_that_one_worker_keeps_another_finds_whatever_its_shards(
    opened: Callable[[int], tuple[Tier, ShardedPools]], writer: int, reader: int
) -> None:
    (kept, source), (found, target) = opened(writer), opened(reader)
    source.write(some_bytes(3))
    kept.thread.store(digest(1), 4)
    assert end(kept) == Stored(4)
    load = found.thread.load([digest(1)], [2])
    assert end(found) == Loaded(load, 1)
    assert block_of(target.read(), 2) == block_of(some_bytes(3), 4)


@dataclass
class Told:
    """Remembers what it was asked for."""

    calls: list[str] = field(default_factory=list)
    breaks: bool = False

    def to_host(self, block: int) -> Sequence[memoryview]:
        raise AssertionError(block)

    def landing(self, block: int) -> Sequence[memoryview]:
        raise AssertionError(block)

    def from_host(self, block: int) -> None:
        self.calls.append(f"from_host {block}")

    def close(self) -> None:
        self.calls.append("close")
        if self.breaks:
            raise UnavailableError("a test said so")


def test_every_shard_is_told_of_what_landed() -> None:
    shards = [Told(), Told()]
    ShardedBlockCopier(shards).from_host(7)
    assert [shard.calls for shard in shards] == [["from_host 7"]] * 2


def test_all_shards_are_closed_though_one_breaks() -> None:
    shards = [Told(breaks=True), Told(), Told(breaks=True)]
    with pytest.raises(UnavailableError):
        ShardedBlockCopier(shards).close()
    assert [shard.calls for shard in shards] == [["close"]] * 3


@pytest.mark.parametrize("block", [-1, LAYOUT.num_blocks])
def test_a_block_outside_the_pools_is_a_bug(make: Make, block: int) -> None:
    copier = copier_of(make(2), 2)
    for ask in (copier.to_host, copier.landing):
        with pytest.raises(BugError, match="no block"):
            ask(block)
