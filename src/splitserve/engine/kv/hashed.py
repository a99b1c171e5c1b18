"""KV of the fake engine: chained hashes in shared memory, laid out like a model's KV.

Each position has a 64-bit hash of its token and all before it. Its slot holds hash and token id in
every layer, K/V and head, so that a lost, swapped or foreign block can be told from the right one.
"""

import ctypes
import mmap
import os
import struct
import weakref
from collections.abc import Sequence
from typing import Final, NamedTuple

from splitserve.errors import ConfigError
from splitserve.protocol.memory import KVLayout, MemoryRegion

ROOT: Final = 0x5EED
"""The hash before the first position."""

_MASK: Final = (1 << 64) - 1
_PAIR_BYTES: Final = 16


def mix(state: int, value: int) -> int:
    """SplitMix64's step and finaliser (Steele, Lea, Flood 2014): spreads every input bit."""
    x = (state + (value + 1) * 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def chain(state: int, tokens: Sequence[int]) -> list[int]:
    """The hash of each position of ``tokens``, ``state`` being the hash before the first."""
    hashes = []
    for token in tokens:
        state = mix(state, token)
        hashes.append(state)
    return hashes


class Run(NamedTuple):
    """Neighbouring slots of one block: ``offset`` in bytes from the start of a layer's first head,
    and the hash and token of each."""

    offset: int
    hashes: Sequence[int]
    tokens: Sequence[int]


class HashPool:
    """A slot holds ``(hash ^ tag, token id)``, repeated to its size of a multiple of 16 bytes.

    The tag differs for each layer, K/V and head, so that KV copied to a wrong place shows. Raises
    ConfigError for another slot size.
    """

    def __init__(self, layout: KVLayout) -> None:
        self._slot_bytes = layout.head_dim * layout.itemsize
        if self._slot_bytes < 1 or self._slot_bytes % _PAIR_BYTES:
            raise ConfigError(
                f"a head of {self._slot_bytes} bytes: the fake needs a multiple of {_PAIR_BYTES}"
            )
        self._pairs = self._slot_bytes // _PAIR_BYTES
        self._fd = os.memfd_create("splitserve-fake-kv", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, layout.pool_bytes)
        self._map = mmap.mmap(self._fd, layout.pool_bytes)
        self._free = weakref.finalize(self, _free, self._map, self._fd)
        self._nbytes = layout.pool_bytes
        self._block_size = layout.block_size
        self._block_bytes = layout.block_bytes
        self._slots = [
            struct.Struct(f"<{count * 2 * self._pairs}Q") for count in range(layout.block_size + 1)
        ]
        heads = 2 * layout.num_kv_heads
        head_bytes = layout.block_size * self._slot_bytes
        self._places = [
            [
                (layout.offset(layer, 0) + head * head_bytes, mix(layer, head))
                for head in range(heads)
            ]
            for layer in range(layout.num_layers)
        ]
        self._all_places = [place for places in self._places for place in places]

    def region(self) -> MemoryRegion:
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        return MemoryRegion(address, self._nbytes, "cpu", self._fd)

    def runs(
        self, blocks: Sequence[int], start: int, hashes: Sequence[int], tokens: Sequence[int]
    ) -> list[Run]:
        """Where the positions from ``start`` on go, cut at block borders."""
        size = self._block_size
        runs = []
        done = 0
        while done < len(hashes):
            number, slot = divmod(start + done, size)
            part = slice(done, done + size - slot)
            offset = blocks[number] * self._block_bytes + slot * self._slot_bytes
            runs.append(Run(offset, hashes[part], tokens[part]))
            done += size - slot
        return runs

    def write(self, layer: int, runs: Sequence[Run]) -> None:
        for offset, hashes, tokens in runs:
            pack = self._slots[len(hashes)].pack_into
            for place, tag in self._places[layer]:
                pack(self._map, place + offset, *self._words(hashes, tokens, tag))

    def _words(self, hashes: Sequence[int], tokens: Sequence[int], tag: int) -> tuple[int, ...]:
        if len(hashes) == 1:
            return (hashes[0] ^ tag, tokens[0]) * self._pairs
        words: list[int] = []
        for value, token in zip(hashes, tokens, strict=True):
            words += (value ^ tag, token) * self._pairs
        return tuple(words)

    def last_hash(self, blocks: Sequence[int], position: int) -> int | None:
        """The hash at ``position``; None when layers, K/V or heads disagree."""
        number, slot = divmod(position, self._block_size)
        offset = blocks[number] * self._block_bytes + slot * self._slot_bytes
        unpack = self._slots[1].unpack_from
        found: int | None = None
        for place, tag in self._all_places:
            value = unpack(self._map, place + offset)[0] ^ tag
            if found is None:
                found = value
            elif value != found:
                return None
        return found

    def check(self, block: int, count: int, state: int) -> int | None:
        """The hash at the end of the block's first ``count`` slots, the one before them being
        ``state``; None when any copy of any slot is not what the token ids in it make it."""
        unpack, base = self._slots[count].unpack_from, block * self._block_bytes
        tokens = unpack(self._map, base)[1 :: 2 * self._pairs]
        hashes = chain(state, tokens)
        for place, tag in self._all_places:
            if unpack(self._map, place + base) != self._words(hashes, tokens, tag):
                return None
        return hashes[-1]

    def close(self) -> None:
        """Frees the memory; also done when the pool is dropped. May be called twice."""
        self._free()


def _free(memory: mmap.mmap, fd: int) -> None:
    memory.close()
    os.close(fd)
