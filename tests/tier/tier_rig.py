"""Small blocks with known bytes, a pool of them, and a clock that never stands still."""

import ctypes
import hashlib
import mmap
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.tier.format import Identity, identity
from splitserve.tier.quota import Quota

LAYOUT = KVLayout("bfloat16", 3, 2, 4, 2, 6, 2)
BLOCK = LAYOUT.block_bytes
IDENTITY = identity("a model", LAYOUT)
FILE = IDENTITY.file_bytes


def digest(number: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(4, "little"), digest_size=16).digest()


def content(number: int) -> bytes:
    """The bytes of the block that ``digest(number)`` names."""
    return hashlib.shake_256(number.to_bytes(4, "little")).digest(IDENTITY.nbytes)


def parts_of(data: bytes | bytearray) -> list[memoryview]:
    """One part for each layer; of a bytearray they may be written."""
    view = memoryview(data)
    return [view[start : start + BLOCK] for start in range(0, len(data), BLOCK)]


class Landing:
    """Where a block is loaded to."""

    def __init__(self) -> None:
        self.data = bytearray(IDENTITY.nbytes)
        self.parts = parts_of(self.data)

    def holds(self, number: int) -> bool:
        return bytes(self.data) == content(number)


class Ticks:
    """Nanoseconds, later at every look."""

    def __init__(self) -> None:
        self._ticks = count(1)

    def __call__(self) -> int:
        return next(self._ticks)


def blocks_in(root: Path, of: Identity = IDENTITY) -> set[bytes]:
    """Digests of the whole blocks in a store's folder."""
    folder = root / of.folder
    return {bytes.fromhex(file.name) for file in folder.iterdir()} if folder.exists() else set()


def sizes(root: Path) -> Iterator[int]:
    """Of everything in a store's folder that its bound speaks of."""
    for file in root.rglob("*"):
        if file.is_file() and file.name not in {".quota", ".users"}:
            yield file.stat().st_size


def measured(root: Path) -> tuple[int, int]:
    """Bytes in the folder, and what its quota says, at one moment."""
    quota = Quota(root / ".quota")
    try:
        with quota.locked():
            return sum(sizes(root)), quota.total()
    finally:
        quota.close()


class Pool:
    """A KV pool of ``LAYOUT`` in this process, all zero."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, LAYOUT.pool_bytes)
        self._view = (ctypes.c_char * LAYOUT.pool_bytes).from_buffer(self._map)
        self.region = MemoryRegion(ctypes.addressof(self._view), LAYOUT.pool_bytes)

    def read(self, block: int) -> bytes:
        found = b""
        for layer in range(LAYOUT.num_layers):
            start = LAYOUT.offset(layer, block)
            found += self._map[start : start + BLOCK]
        return found

    def write(self, block: int, data: bytes) -> None:
        for layer in range(LAYOUT.num_layers):
            start = LAYOUT.offset(layer, block)
            self._map[start : start + BLOCK] = data[layer * BLOCK : (layer + 1) * BLOCK]
