"""KV pools in shared memory, as an engine makes them: one, and those of a worker with shards."""

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from splitserve.protocol.memory import KVLayout, MemoryRegion


class SharedPool:
    def __init__(self, layout: KVLayout) -> None:
        self.fd = os.memfd_create("pool")
        os.ftruncate(self.fd, layout.pool_bytes)
        self.memory = mmap.mmap(self.fd, layout.pool_bytes)
        self._view = (ctypes.c_char * layout.pool_bytes).from_buffer(self.memory)
        self.region = MemoryRegion(
            ctypes.addressof(self._view), layout.pool_bytes, shared_fd=self.fd
        )

    def write(self, data: bytes) -> None:
        self.memory[:] = data

    def read(self) -> bytes:
        return bytes(self.memory)

    def close(self) -> None:
        del self._view
        self.memory.close()
        os.close(self.fd)


class _Row(NamedTuple):
    """One head of one block of one layer, K or V: where it is in one pool of all heads, in which
    shard's pool, and where there."""

    whole: slice
    memory: mmap.mmap
    part: slice


class ShardedPools:
    """``count`` pools that share out the heads of ``layout``: written and read as if they were one
    of all heads."""

    def __init__(self, layout: KVLayout, count: int) -> None:
        self.layout = layout
        self._shares = layout.shards(count)
        self._pools = [SharedPool(share) for share in self._shares]

    @property
    def regions(self) -> tuple[MemoryRegion, ...]:
        return tuple(pool.region for pool in self._pools)

    def write(self, data: bytes) -> None:
        for row in self._rows():
            row.memory[row.part] = data[row.whole]

    def read(self) -> bytes:
        found = bytearray(self.layout.pool_bytes)
        for row in self._rows():
            found[row.whole] = row.memory[row.part]
        return bytes(found)

    def close(self) -> None:
        for pool in self._pools:
            pool.close()

    def _rows(self) -> Iterator[_Row]:
        for pool, share in zip(self._pools, self._shares, strict=True):
            for place in product(
                range(share.num_layers), range(share.num_blocks), range(2), share.kv_heads
            ):
                yield _Row(_head(self.layout, *place), pool.memory, _head(share, *place))


def copied(
    source: tuple[bytes, KVLayout],
    target: tuple[bytes, KVLayout],
    tokens: range,
    source_blocks: Sequence[int],
    target_blocks: Sequence[int],
) -> bytes:
    """The target's bytes once ``tokens`` of all layers and heads have arrived and nothing else.
    Blocks are those of the prompt from its first token on."""
    (sent, here), (held, there) = source, target
    found, row = bytearray(held), here.head_dim * here.itemsize
    for layer, half, head, token in product(
        range(here.num_layers), range(2), here.kv_heads, tokens
    ):
        (block, slot), (to_block, to_slot) = (
            divmod(token, layout.block_size) for layout in (here, there)
        )
        start = _head(here, layer, source_blocks[block], half, head).start + slot * row
        to = _head(there, layer, target_blocks[to_block], half, head).start + to_slot * row
        found[to : to + row] = sent[start : start + row]
    return bytes(found)


def _head(layout: KVLayout, layer: int, block: int, half: int, head: int) -> slice:
    """A head's bytes of a block, from the pool's start."""
    nbytes = layout.block_size * layout.head_dim * layout.itemsize
    place = half * layout.num_kv_heads + head - layout.first_kv_head
    start = layout.offset(layer, block) + place * nbytes
    return slice(start, start + nbytes)
