"""A KV tier that does what the test says."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from splitserve.tier.store import LevelCounts
from splitserve.tier.worker_thread import Loaded, LoadId, Stored

COUNTS = LevelCounts(hits=1, misses=2, nbytes=3, evictions=4, corrupt=5)


@dataclass
class Scripted:
    """``ends`` is what the next poll tells."""

    loads: dict[LoadId, tuple[tuple[bytes, ...], tuple[int, ...]]] = field(default_factory=dict)
    cancelled: list[LoadId] = field(default_factory=list)
    stores: list[tuple[bytes, int]] = field(default_factory=list)
    ends: list[Loaded | Stored] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    stored: int = 0
    """How many of ``stores`` have been told as such."""

    def load(self, digests: Sequence[bytes], blocks: Sequence[int]) -> LoadId:
        load = LoadId(next(self.numbers))
        self.loads[load] = (tuple(digests), tuple(blocks))
        return load

    def cancel(self, load: LoadId) -> None:
        self.cancelled.append(load)

    def store(self, digest: bytes, block: int) -> None:
        self.stores.append((digest, block))

    def poll(self) -> list[Loaded | Stored]:
        ends, self.ends = self.ends, []
        return ends

    def counts(self) -> Mapping[str, LevelCounts]:
        return {"memory": COUNTS}

    def find_nothing(self) -> None:
        """Every load ends, without a block."""
        self.ends += [Loaded(load, 0) for load in self.loads]
        self.loads = {}

    def keep(self) -> bool:
        """What was given to store is stored. False when that is nothing."""
        new, self.stored = self.stores[self.stored :], len(self.stores)
        self.ends += [Stored(block) for _, block in new]
        return bool(new)
