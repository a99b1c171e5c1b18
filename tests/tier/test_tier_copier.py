"""A block's bytes are those of the pool, layer by layer, and of no other block."""

import pytest
from tier_rig import LAYOUT, Pool, content

from splitserve.errors import BugError, ConfigError
from splitserve.protocol.memory import MemoryRegion
from splitserve.tier.copier import HostBlockCopier


def test_a_block_is_read_layer_by_layer() -> None:
    pool = Pool()
    for block in range(LAYOUT.num_blocks):
        pool.write(block, content(block))
    copier = HostBlockCopier(pool.region, LAYOUT)
    for block in range(LAYOUT.num_blocks):
        assert b"".join(copier.to_host(block)) == content(block)


def test_what_lands_is_in_the_pool_and_nowhere_else() -> None:
    pool = Pool()
    copier = HostBlockCopier(pool.region, LAYOUT)
    offset = 0
    for part in copier.landing(3):
        part[:] = content(7)[offset : offset + len(part)]
        offset += len(part)
    copier.from_host(3)
    others = [block for block in range(LAYOUT.num_blocks) if block != 3]
    assert pool.read(3) == content(7)
    assert all(pool.read(block) == bytes(len(content(7))) for block in others)


@pytest.mark.parametrize("block", [-1, LAYOUT.num_blocks])
def test_a_block_outside_the_pool_is_a_bug(block: int) -> None:
    pool = Pool()
    copier = HostBlockCopier(pool.region, LAYOUT)
    with pytest.raises(BugError, match="no block"):
        copier.landing(block)


def test_a_region_smaller_than_its_layout_is_a_bug() -> None:
    pool = Pool()
    small = MemoryRegion(pool.region.address, LAYOUT.pool_bytes - 1)
    with pytest.raises(BugError, match="KV pool"):
        HostBlockCopier(small, LAYOUT)


def test_a_pool_on_a_gpu_is_refused_with_the_cure() -> None:
    region = MemoryRegion(0, LAYOUT.pool_bytes, "cuda:0")
    with pytest.raises(ConfigError, match="leave out --kv-tier-memory-bytes"):
        HostBlockCopier(region, LAYOUT)
