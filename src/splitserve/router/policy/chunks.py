"""Names the starts of a text by their content, a chunk of tokens further each.

A start's name is a hash of the cache salt and all its tokens. So two texts have the names of their
common start in common and no others; an edited history can only miss. Chunks are coarser than KV
blocks: where a prompt might be cached has to be known about, not exactly.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

CHUNK: Final = 128
"""Tokens from one name to the next."""

_DIGEST_BYTES: Final = 16
_LENGTH_BYTES: Final = 8


class Chunks:
    """``names`` are those of the starts of ``CHUNK``, ``2 * CHUNK``, ... tokens. Every token is
    hashed once, however the text grows. ``salt`` separates tenants, as in the workers' caches."""

    __slots__ = ("_open", "_state", "names")

    def __init__(self, salt: str) -> None:
        # surrogatepass: a salt comes from outside and must not be able to raise.
        data = salt.encode("utf-8", "surrogatepass")
        length = len(data).to_bytes(_LENGTH_BYTES, "little")
        self._state = blake2b(length + data, digest_size=_DIGEST_BYTES)
        self._open = 0
        """Tokens after the last full chunk, hashed already."""
        self.names: list[bytes] = []

    def extend(self, tokens: Sequence[int]) -> None:
        """The text goes on with ``tokens``."""
        view, done = memoryview(array("q", tokens)), 0
        while (end := done + CHUNK - self._open) <= len(view):
            self._state.update(view[done:end])
            self.names.append(self._state.digest())
            done, self._open = end, 0
        self._state.update(view[done:])
        self._open += len(view) - done
