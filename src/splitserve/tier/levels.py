"""Memory in front of disk: where a block is looked for, and where it goes next."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NewType

from splitserve.tier.store import FolderTier, LevelCounts

log = logging.getLogger(__name__)

LevelNumber = NewType("LevelNumber", int)
"""0 is the fastest level."""


class Level:
    """A folder whose failures are misses: what cannot be read or kept is computed. The first of a
    row of failures is in the log."""

    def __init__(self, name: str, store: FolderTier) -> None:
        self.name = name
        self.store = store
        self._works = True

    def get(self, digest: bytes, parts: Sequence[memoryview]) -> bool:
        try:
            found = self.store.get(digest, parts)
        except OSError as error:
            return self._failed(error)
        self._works = True
        return found

    def put(self, digest: bytes, parts: Sequence[memoryview]) -> bool:
        try:
            kept = self.store.put(digest, parts)
        except OSError as error:
            return self._failed(error)
        self._works = True
        return kept

    def take(self, name: str, file: Path) -> bool:
        """See ``FolderTier.take``."""
        try:
            return self.store.take(name, file)
        except FileNotFoundError:
            return False  # another process sent the block away meanwhile
        except OSError as error:
            return self._failed(error)

    def _failed(self, error: OSError) -> bool:
        if self._works:
            log.warning("the KV tier in %s fails; going on without: %s", self.name, error)
        self._works = False
        return False


class Levels:
    """From the fastest to the slowest; each but the last was made with the next one's ``take`` as
    ``evicted``. Used by one thread, but for ``counts`` and ``held_bytes``."""

    def __init__(self, levels: Sequence[Level]) -> None:
        self._levels = tuple(levels)

    def load(self, digest: bytes, parts: Sequence[memoryview]) -> LevelNumber | None:
        """Fills ``parts`` with the block and says where it was; after None they may hold
        anything."""
        for number, level in enumerate(self._levels):
            if level.get(digest, parts):
                return LevelNumber(number)
        return None

    def promote(self, digest: bytes, found: LevelNumber) -> None:
        """A block that was wanted is kept where it is found faster.

        It is copied from file to file: whoever loaded it may be using the memory otherwise by now.
        """
        name, file = self._levels[found].store.file(digest)
        for level in self._levels[:found]:
            level.take(name, file)

    def store(self, digest: bytes, parts: Sequence[memoryview]) -> bool:
        """Keeps the block in the fastest level that takes it. False when none does."""
        return any(level.put(digest, parts) for level in self._levels)

    def counts(self) -> Mapping[str, LevelCounts]:
        """By the level's name."""
        return {level.name: level.store.counts() for level in self._levels}

    def held_bytes(self) -> Mapping[str, int]:
        """By the level's name; of all processes of the host. Not after ``close``."""
        return {level.name: level.store.held_bytes() for level in self._levels}

    def close(self) -> None:
        for level in self._levels:
            level.store.close()
