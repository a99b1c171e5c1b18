"""A KV pool without an engine, in shared memory, for measuring connectors."""

import ctypes
import mmap
import os
from typing import Final

from splitserve.modelstore.folder import ModelFolder
from splitserve.protocol.memory import KVLayout, MemoryRegion

BLOCK_SIZE: Final = 16
BF16_BYTES: Final = 2


def layout_of(folder: ModelFolder, tokens: int) -> KVLayout:
    """A bf16 pool of the model's shape that holds ``tokens``."""
    config = folder.config()
    heads = int(config["num_attention_heads"])
    return KVLayout(
        dtype="bfloat16",
        num_layers=int(config["num_hidden_layers"]),
        num_kv_heads=int(config.get("num_key_value_heads", heads)),
        head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
        block_size=BLOCK_SIZE,
        num_blocks=-(-tokens // BLOCK_SIZE),
        itemsize=BF16_BYTES,
    )


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
