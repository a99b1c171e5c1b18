"""A KV pool without an engine, for measuring connectors, and the one in shared memory."""

import ctypes
import hashlib
import mmap
import os
import random
import time
from collections.abc import Sequence
from typing import Final, Literal, Protocol

from splitserve.errors import UnavailableError
from splitserve.loading import load
from splitserve.modelstore.folder import ModelFolder
from splitserve.protocol.memory import KVLayout, MemoryRegion

BLOCK_SIZE: Final = 16
BF16_BYTES: Final = 2

_DRAWN_BYTES: Final = 1 << 20
"""Random bytes at a time: ``random`` draws no more than 256 MiB at once."""

Device = Literal["cpu", "cuda"]
Side = Literal["source", "target"]
"""Of a handoff."""


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


class Pool(Protocol):
    """A KV pool without an engine. ``device`` names where it is, for people."""

    layout: KVLayout
    region: MemoryRegion
    device: str

    def fill(self) -> None:
        """With random bytes."""
        ...

    def digest(self, blocks: Sequence[int]) -> bytes:
        """SHA-256 of these blocks of all layers, in this order."""
        ...

    def plain_copy_s(self, nbytes: int) -> float:
        """Seconds that the plainest copy of ``nbytes`` takes to where handoffs from here go."""
        ...

    def close(self) -> None: ...


class BarePool:
    """``layout.pool_bytes`` of shared memory, every page touched."""

    device = "cpu"

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

    def fill(self) -> None:
        drawn = random.Random(0)
        for start in range(0, self.region.nbytes, _DRAWN_BYTES):
            end = min(start + _DRAWN_BYTES, self.region.nbytes)
            self._memory[start:end] = drawn.randbytes(end - start)

    def digest(self, blocks: Sequence[int]) -> bytes:
        made = hashlib.sha256()
        for layer in range(self.layout.num_layers):
            for block in blocks:
                start = self.layout.offset(layer, block)
                made.update(self._memory[start : start + self.layout.block_bytes])
        return made.digest()

    def plain_copy_s(self, nbytes: int) -> float:
        """A memcpy within the pool, from its start to its end."""
        target = self.region.address + self.region.nbytes - nbytes
        start = time.perf_counter()
        ctypes.memmove(target, self.region.address, nbytes)
        return time.perf_counter() - start

    def close(self) -> None:
        del self._view
        self._memory.close()
        os.close(self._fd)


def make_pool(layout: KVLayout, device: Device, side: Side) -> Pool:
    """On ``cuda`` a source on the first GPU and a target on the second, or both on the only one.
    Raises UnavailableError where there is none."""
    if device == "cpu":
        return BarePool(layout)
    try:
        source, target = load("splitserve.bench.device_pool:places")()
    except ImportError as error:
        raise UnavailableError(f"torch for CUDA with cuda-bindings is needed: {error}") from error
    index = source if side == "source" else target
    pool: Pool = load("splitserve.bench.device_pool:DevicePool")(layout, index, target)
    return pool
