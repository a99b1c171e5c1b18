"""The seam to the KV pool: where the bytes of a block are in host memory.

Those here are for pools that lie there, and for several pools that share out the KV heads. The one
for a GPU, ``transfer.cuda.block_copier``, has memory of its own that the device copies to and from.
"""

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

from splitserve.errors import BugError
from splitserve.protocol.memory import KVLayout, MemoryRegion


class BlockCopier(Protocol):
    """Used by one thread. Blocks are numbers of the pool; their bytes are given layer by layer, in
    the order of a pool with all heads, in as many parts as it takes. They stay where they are until
    the next call."""

    def to_host(self, block: int) -> Sequence[memoryview]:
        """The bytes of a block that nobody writes meanwhile."""
        ...

    def landing(self, block: int) -> Sequence[memoryview]:
        """Where to put the bytes of a block that nobody else uses meanwhile."""
        ...

    def from_host(self, block: int) -> None:
        """What was put into the block's landing, which was asked for just before, is in the pool,
        visible to its engine."""
        ...

    def close(self) -> None:
        """By any thread, once nobody uses it nor what it gave. May be called twice."""
        ...


class HostBlockCopier:
    """For a pool in this process's memory: nothing is copied, the bytes are those of the pool."""

    def __init__(self, region: MemoryRegion, layout: KVLayout) -> None:
        """The pool must outlive this. Raises BugError for one elsewhere."""
        if region.device != "cpu":
            raise BugError(f"the KV pool is on {region.device} and not in this process's memory")
        if layout.pool_bytes > region.nbytes:
            raise BugError(f"the KV pool has {region.nbytes} bytes, not {layout.pool_bytes}")
        pool = (ctypes.c_char * region.nbytes).from_address(region.address)
        self._pool = memoryview(pool).cast("B")
        self._layout = layout

    def to_host(self, block: int) -> Sequence[memoryview]:
        return self._parts(block)

    def landing(self, block: int) -> Sequence[memoryview]:
        return self._parts(block)

    def from_host(self, block: int) -> None:
        """It is there already."""

    def close(self) -> None:
        """Nothing is its own."""

    def _parts(self, block: int) -> list[memoryview]:
        layout = self._layout
        if not 0 <= block < layout.num_blocks:
            raise BugError(f"there is no block {block} in a pool of {layout.num_blocks}")
        starts = (layout.offset(layer, block) for layer in range(layout.num_layers))
        return [self._pool[start : start + layout.block_bytes] for start in starts]


class ShardedBlockCopier:
    """For pools that share out the KV heads. A block's bytes are those that it has in one pool of
    all heads, so that workers with any number of shards keep the same blocks."""

    def __init__(self, shards: Sequence[BlockCopier]) -> None:
        """One for each pool, in the order of their heads; they are closed with this."""
        self._shards = shards

    def to_host(self, block: int) -> Sequence[memoryview]:
        return _joined([shard.to_host(block) for shard in self._shards])

    def landing(self, block: int) -> Sequence[memoryview]:
        return _joined([shard.landing(block) for shard in self._shards])

    def from_host(self, block: int) -> None:
        for shard in self._shards:
            shard.from_host(block)

    def close(self) -> None:
        with ExitStack() as closing:
            for shard in self._shards:
                closing.callback(shard.close)


def _joined(shards: Sequence[Sequence[memoryview]]) -> list[memoryview]:
    """For each layer K of all heads, then V: a shard has both of its own heads in one part."""
    parts: list[memoryview] = []
    for layer in zip(*shards, strict=True):
        parts += [part[: len(part) // 2] for part in layer]
        parts += [part[len(part) // 2 :] for part in layer]
    return parts
