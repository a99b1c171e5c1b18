"""Names KV blocks by their content, so that equal prompt starts can share them.

A block's name is a hash of the name before it and its own token ids, so it stands for the whole
prefix. An edited history can only miss (design: reuse by content, never by position).
"""

import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Final

DIGEST_BYTES: Final = 16
_LENGTH: Final = struct.Struct("<Q")


def root_digest(keys: Mapping[str, str]) -> bytes:
    """What the first block of a sequence is chained to.

    ``keys`` is everything besides token ids that KV depends on or that separates tenants. Each key
    and value is hashed with its length, so no two different mappings give the same bytes.
    """
    digest = blake2b(digest_size=DIGEST_BYTES)
    for key in sorted(keys):
        for part in (key, keys[key]):
            # surrogatepass: a salt comes from outside and must not be able to raise.
            data = part.encode("utf-8", "surrogatepass")
            digest.update(_LENGTH.pack(len(data)))
            digest.update(data)
    return digest.digest()


class BlockHasher:
    """Computes the names of full blocks of ``block_size`` tokens."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        # Little-endian 64 bit whatever the machine: names may be compared between workers.
        self._ids = struct.Struct(f"<{block_size}q")

    def extend(self, digests: list[bytes], root: bytes, tokens: Sequence[int], count: int) -> None:
        """Appends to ``digests`` until it names the first ``count`` blocks of ``tokens``.

        Names that are there already are kept, so each block of a sequence is hashed once.
        """
        size = self._block_size
        for number in range(len(digests), count):
            parent = digests[number - 1] if number else root
            ids = self._ids.pack(*tokens[number * size : (number + 1) * size])
            digests.append(blake2b(parent + ids, digest_size=DIGEST_BYTES).digest())


class PrefixIndex:
    """Which block holds the KV of which name, and which of them nobody uses.

    Unused ones are evicted in the order in which they became unused. All operations are O(1) per
    block.
    """

    def __init__(self) -> None:
        self._block_of: dict[bytes, int] = {}
        self._digest_of: dict[int, bytes] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()
        self._news: dict[int, None] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._digest_of

    def add(self, block: int, digest: bytes) -> bool:
        """Names a computed block. False, and no effect, when the name or the block is taken."""
        if digest in self._block_of or block in self._digest_of:
            return False
        self._block_of[digest] = block
        self._digest_of[block] = digest
        self._news[block] = None
        return True

    def find(self, digests: Sequence[bytes]) -> list[int]:
        """The blocks of the longest known start of ``digests``."""
        blocks: list[int] = []
        for digest in digests:
            block = self._block_of.get(digest)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def take_news(self, limit: int) -> list[tuple[bytes, int]]:
        """Names and blocks that were added and not taken since, the oldest ones first."""
        blocks = list(islice(self._news, limit))
        for block in blocks:
            del self._news[block]
        return [(self._digest_of[block], block) for block in blocks]

    def retire(self, block: int) -> None:
        """Nobody uses the named block now: it may be evicted, after all that are unused longer."""
        self._unused[block] = None

    def revive(self, block: int) -> None:
        """The unused block is in use again."""
        del self._unused[block]

    def evict(self) -> int:
        """Forgets the block that is unused for the longest time and returns it.

        Raises KeyError when every named block is in use.
        """
        block = next(iter(self._unused), None)
        if block is None:
            raise KeyError("every named block is in use")
        self.forget(block)
        return block

    def oldest(self, limit: int) -> list[int]:
        """At most ``limit`` unused blocks, those that are unused for the longest time first."""
        return list(islice(self._unused, limit))

    def forget(self, block: int) -> None:
        """The unused block may get other content."""
        del self._unused[block]
        del self._block_of[self._digest_of.pop(block)]
        self._news.pop(block, None)
