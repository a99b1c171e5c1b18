"""KV of the fake engine: chained hashes in shared memory, laid out like a model's KV.

Each position has a 64-bit hash of its token and all before it. Its slot holds hash and token id in
every layer, K/V and head, so that a lost, swapped or foreign block can be told from the right one.
"""

import ctypes
import mmap
import os
import struct
import weakref
from collections.abc import Iterator, Sequence
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

    The tag differs for each of the model's layers, K/V and heads, so that KV copied to a wrong
    place shows. The memory is one piece for each of ``shards``, which differ in the heads they
    hold. Raises ConfigError for another slot size.
    """

    def __init__(self, shards: Sequence[KVLayout]) -> None:
        layout = shards[0]
        self._slot_bytes = layout.head_dim * layout.itemsize
        if self._slot_bytes < 1 or self._slot_bytes % _PAIR_BYTES:
            raise ConfigError(
                f"a head of {self._slot_bytes} bytes: the fake needs a multiple of {_PAIR_BYTES}"
            )
        self._pairs = self._slot_bytes // _PAIR_BYTES
        self._memories = [_Memory(shard.pool_bytes) for shard in shards]
        self._free = weakref.finalize(self, _free, self._memories)
        self._block_size = layout.block_size
        self._block_bytes = layout.block_bytes
        self._slots = [
            struct.Struct(f"<{count * 2 * self._pairs}Q") for count in range(layout.block_size + 1)
        ]
        self._places = [
            [
                (memory.map, *place)
                for memory, shard in zip(self._memories, shards, strict=True)
                for place in _places(shard, layer)
            ]
            for layer in range(layout.num_layers)
        ]
        self._all_places = [place for places in self._places for place in places]

    def regions(self) -> tuple[MemoryRegion, ...]:
        """One for each shard."""
        return tuple(memory.region() for memory in self._memories)

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
            for memory, place, tag in self._places[layer]:
                pack(memory, place + offset, *self._words(hashes, tokens, tag))

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
        for memory, place, tag in self._all_places:
            value = unpack(memory, place + offset)[0] ^ tag
            if found is None:
                found = value
            elif value != found:
                return None
        return found

    def check(self, block: int, count: int, state: int) -> int | None:
        """The hash at the end of the block's first ``count`` slots, the one before them being
        ``state``; None when any copy of any slot is not what the token ids in it make it."""
        unpack, base = self._slots[count].unpack_from, block * self._block_bytes
        tokens = unpack(self._memories[0].map, base)[1 :: 2 * self._pairs]
        hashes = chain(state, tokens)
        for memory, place, tag in self._all_places:
            if unpack(memory, place + base) != self._words(hashes, tokens, tag):
                return None
        return hashes[-1]

    def close(self) -> None:
        """Frees the memory; also done when the pool is dropped. May be called twice."""
        self._free()


class _Memory:
    """Shared memory of one shard, ``nbytes`` of it."""

    def __init__(self, nbytes: int) -> None:
        self._fd = os.memfd_create("splitserve-fake-kv", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, nbytes)
        self.map = mmap.mmap(self._fd, nbytes)

    def region(self) -> MemoryRegion:
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        return MemoryRegion(address, len(self.map), "cpu", self._fd)

    def close(self) -> None:
        self.map.close()
        os.close(self._fd)


def _free(memories: Sequence[_Memory]) -> None:
    for memory in memories:
        memory.close()


def _places(shard: KVLayout, layer: int) -> Iterator[tuple[int, int]]:
    """Where keys, then values of each of the shard's heads begin in ``layer``, and their tags."""
    head_bytes = shard.block_size * shard.head_dim * shard.itemsize
    at = shard.offset(layer, 0)
    for half in range(2):
        for head in shard.kv_heads:
            yield at, mix(layer, half * shard.model_kv_heads + head)
            at += head_bytes
