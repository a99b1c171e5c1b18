"""The seam to the KV pool: where the bytes of a block are in host memory.

There is one implementation, for pools that lie there. One for a GPU would keep memory of its own
that the device copies to and from.
"""

import ctypes
from collections.abc import Sequence
from typing import Protocol

from splitserve.errors import BugError, ConfigError
from splitserve.protocol.memory import KVLayout, MemoryRegion


class BlockCopier(Protocol):
    """Used by one thread. Blocks are numbers of the pool; their bytes are given layer by layer, in
    the pool's order, and stay where they are until the next call."""

    def to_host(self, block: int) -> Sequence[memoryview]:
        """The bytes of a block that nobody writes meanwhile."""
        ...

    def landing(self, block: int) -> Sequence[memoryview]:
        """Where to put the bytes of a block that nobody else uses meanwhile."""
        ...

    def from_host(self, block: int) -> None:
        """What was put into the block's landing is in the pool, visible to its engine."""
        ...


class HostBlockCopier:
    """For a pool in this process's memory: nothing is copied, the bytes are those of the pool."""

    def __init__(self, region: MemoryRegion, layout: KVLayout) -> None:
        """Raises ConfigError for a pool elsewhere. The pool must outlive this."""
        if region.device != "cpu":
            raise ConfigError(
                f"the KV tier cannot reach a pool on {region.device} yet: leave out "
                "--kv-tier-memory-bytes and --kv-tier-disk-path, or serve with --device cpu"
            )
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

    def _parts(self, block: int) -> list[memoryview]:
        layout = self._layout
        if not 0 <= block < layout.num_blocks:
            raise BugError(f"there is no block {block} in a pool of {layout.num_blocks}")
        starts = (layout.offset(layer, block) for layer in range(layout.num_layers))
        return [self._pool[start : start + layout.block_bytes] for start in starts]
