"""What every way to a KV pool promises the tier, whatever the pool lies in.

``fake_gpu`` is the copier for GPUs over a driver that is played; ``gpu`` needs a real one.
"""

import ctypes
import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pytest

from fake_cuda_driver import cuda_copier, playing
from splitserve.errors import BugError
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.tier.copier import BlockCopier, HostBlockCopier

LAYOUT = KVLayout("bfloat16", 3, 2, 4, 2, 6, 2)
BLOCK = LAYOUT.block_bytes


class Pool(Protocol):
    region: MemoryRegion

    def read(self) -> bytes: ...
    def write(self, data: bytes) -> None: ...


class HostPool:
    """In this process, and said to be on ``device``."""

    def __init__(self, device: str) -> None:
        self._memory = ctypes.create_string_buffer(LAYOUT.pool_bytes)
        address = ctypes.addressof(self._memory)
        self.region = MemoryRegion(address, LAYOUT.pool_bytes, device)

    def read(self) -> bytes:
        return self._memory.raw

    def write(self, data: bytes) -> None:
        self._memory[:] = data


@dataclass
class Kind:
    """One implementation: what makes it, and a pool that it reaches."""

    make: Callable[[MemoryRegion, KVLayout], BlockCopier]
    pool: Pool


@pytest.fixture(params=["host", "fake_gpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    if request.param == "host":
        yield Kind(HostBlockCopier, HostPool("cpu"))
    elif request.param == "fake_gpu":
        with playing():
            yield Kind(cuda_copier, HostPool("cuda:0"))
    else:
        from device_pools import DeviceSource

        pool = DeviceSource(LAYOUT)
        yield Kind(cuda_copier, pool)
        pool.close()


@pytest.fixture
def copier(kind: Kind) -> Iterator[BlockCopier]:
    copier = kind.make(kind.pool.region, LAYOUT)
    yield copier
    copier.close()


def some_bytes(seed: int, count: int = LAYOUT.pool_bytes) -> bytes:
    return hashlib.shake_256(bytes([seed])).digest(count)


def block_of(pool: bytes, block: int) -> bytes:
    starts = [LAYOUT.offset(layer, block) for layer in range(LAYOUT.num_layers)]
    return b"".join(pool[start : start + BLOCK] for start in starts)


def with_block(pool: bytes, block: int, data: bytes) -> bytes:
    held = bytearray(pool)
    for layer in range(LAYOUT.num_layers):
        start = LAYOUT.offset(layer, block)
        held[start : start + BLOCK] = data[layer * BLOCK : (layer + 1) * BLOCK]
    return bytes(held)


def bring(copier: BlockCopier, block: int, data: bytes) -> None:
    for layer, part in enumerate(copier.landing(block)):
        part[:] = data[layer * BLOCK : (layer + 1) * BLOCK]
    copier.from_host(block)


def test_a_block_is_read_layer_by_layer(kind: Kind, copier: BlockCopier) -> None:
    kind.pool.write(some_bytes(1))
    for block in range(LAYOUT.num_blocks):
        parts = copier.to_host(block)
        assert [len(part) for part in parts] == [BLOCK] * LAYOUT.num_layers
        assert b"".join(parts) == block_of(some_bytes(1), block)
    assert kind.pool.read() == some_bytes(1)


@pytest.mark.parametrize("block", [0, 3, LAYOUT.num_blocks - 1])
def test_what_lands_is_in_the_pool_and_nowhere_else(
    kind: Kind, copier: BlockCopier, block: int
) -> None:
    kind.pool.write(some_bytes(1))
    data = some_bytes(2, BLOCK * LAYOUT.num_layers)
    bring(copier, block, data)
    assert kind.pool.read() == with_block(some_bytes(1), block, data)


def test_reading_and_bringing_in_any_order_is_what_a_pool_of_bytes_does(
    kind: Kind, copier: BlockCopier
) -> None:
    chance, held = random.Random(5), some_bytes(1)
    kind.pool.write(held)
    for turn in range(60):
        block = chance.randrange(LAYOUT.num_blocks)
        if chance.random() < 0.5:
            data = some_bytes(turn, BLOCK * LAYOUT.num_layers)
            bring(copier, block, data)
            held = with_block(held, block, data)
        else:
            assert b"".join(copier.to_host(block)) == block_of(held, block)
    assert kind.pool.read() == held


@pytest.mark.parametrize("block", [-1, LAYOUT.num_blocks])
def test_a_block_outside_the_pool_is_a_bug(copier: BlockCopier, block: int) -> None:
    with pytest.raises(BugError, match="no block"):
        copier.landing(block)
    with pytest.raises(BugError, match="no block"):
        copier.to_host(block)


def test_a_region_smaller_than_its_layout_is_a_bug(kind: Kind) -> None:
    region = kind.pool.region
    small = MemoryRegion(region.address, LAYOUT.pool_bytes - 1, region.device)
    with pytest.raises(BugError, match="KV pool"):
        kind.make(small, LAYOUT)


def test_a_pool_elsewhere_is_a_bug(kind: Kind) -> None:
    device = "cuda:0" if kind.pool.region.device == "cpu" else "cpu"
    with pytest.raises(BugError, match="KV pool is on"):
        kind.make(MemoryRegion(0, LAYOUT.pool_bytes, device), LAYOUT)


def test_closing_twice_is_closing_once(copier: BlockCopier) -> None:
    copier.to_host(0)
    copier.close()
    copier.close()
