"""A KV pool without an engine, in shared memory, for measuring connectors."""

import ctypes
import mmap
import os

from splitserve.protocol.memory import KVLayout, MemoryRegion


class BarePool:
    """``layout.pool_bytes`` of shared memory, every page touched."""

    def __init__(self, layout: KVLayout) -> None:
        self._fd = os.memfd_create("splitserve-bench-pool")
        os.ftruncate(self._fd, layout.pool_bytes)
        self._memory = mmap.mmap(self._fd, layout.pool_bytes)
        self._view = (ctypes.c_char * layout.pool_bytes).from_buffer(self._memory)
        self.layout = layout
        self.region = MemoryRegion(
            ctypes.addressof(self._view), layout.pool_bytes, shared_fd=self._fd
        )
        ctypes.memset(self.region.address, 1, layout.pool_bytes)

    def close(self) -> None:
        del self._view
        self._memory.close()
        os.close(self._fd)
