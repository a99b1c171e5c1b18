"""The tier's thread: what is asked of it ends exactly once, loads first, and it dies loudly."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tier_rig import FILE, IDENTITY, LAYOUT, Pool, Ticks, blocks_in, content, digest

from splitserve.errors import BugError
from splitserve.tier.copier import HostBlockCopier
from splitserve.tier.levels import Level, Levels
from splitserve.tier.store import FolderTier
from splitserve.tier.worker_thread import Loaded, Stored, TierThread

PATIENCE_S = 20.0


class Gate(HostBlockCopier):
    """Holds the thread at the block it is to store or to load next, until it is opened."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool.region, LAYOUT)
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.opened.set()

    def to_host(self, block: int) -> Sequence[memoryview]:
        self._pass()
        return super().to_host(block)

    def landing(self, block: int) -> Sequence[memoryview]:
        self._pass()
        return super().landing(block)

    def close(self) -> None:
        self.reached.clear()
        self.opened.clear()

    def _pass(self) -> None:
        self.reached.set()
        assert self.opened.wait(PATIENCE_S)


@dataclass
class Rig:
    pool: Pool
    gate: Gate
    memory: Path
    disk: Path
    thread: TierThread

    def ended(self, count: int) -> list[Loaded | Stored]:
        """The next ``count`` ends, in their order."""
        found: list[Loaded | Stored] = []
        until = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < until
            found += self.thread.poll()
            time.sleep(0.0005)  # lets the other thread run
        return found

    def until(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until
            time.sleep(0.0005)

    def keep(self, *numbers: int) -> None:
        """Block ``number`` of the pool gets the content of that number, which is stored."""
        for number in numbers:
            self.pool.write(number, content(number))
            self.thread.store(digest(number), number)
        assert self.ended(len(numbers)) == [Stored(number) for number in numbers]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Two blocks fit in memory."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    ticks = Ticks()
    slow = Level("disk", FolderTier(disk, 20 * FILE, IDENTITY, now_ns=ticks))
    fast = Level("memory", FolderTier(memory, 2 * FILE, IDENTITY, slow.take, ticks))
    levels = Levels([fast, slow])
    pool = Pool()
    gate = Gate(pool)
    thread = TierThread(levels, gate)
    thread.start()
    yield Rig(pool, gate, memory, disk, thread)
    gate.opened.set()
    assert thread.close()
    levels.close()


def test_what_was_stored_is_loaded_into_other_blocks(rig: Rig) -> None:
    rig.keep(0, 1)
    load = rig.thread.load([digest(0), digest(1)], [4, 2])
    assert rig.ended(1) == [Loaded(load, 2)]
    assert rig.pool.read(4) == content(0)
    assert rig.pool.read(2) == content(1)


def test_a_load_brings_the_longest_known_start(rig: Rig) -> None:
    rig.keep(0, 2)
    load = rig.thread.load([digest(0), digest(1), digest(2)], [3, 4, 5])
    assert rig.ended(1) == [Loaded(load, 1)]
    assert rig.pool.read(3) == content(0)
    assert rig.pool.read(5) == bytes(len(content(2)))


def test_a_load_of_nothing_ends_too(rig: Rig) -> None:
    load = rig.thread.load([], [])
    assert rig.ended(1) == [Loaded(load, 0)]


def test_loads_come_before_what_is_to_be_stored(rig: Rig) -> None:
    rig.keep(0)
    rig.gate.close()
    rig.thread.store(digest(1), 1)
    assert rig.gate.reached.wait(PATIENCE_S)
    rig.thread.store(digest(2), 2)
    load = rig.thread.load([digest(0)], [5])
    rig.gate.opened.set()
    assert rig.ended(3) == [Stored(1), Loaded(load, 1), Stored(2)]


def test_a_cancelled_load_ends_with_the_block_it_is_at(rig: Rig) -> None:
    rig.keep(0, 1)
    rig.gate.close()
    load = rig.thread.load([digest(0), digest(1)], [5, 4])
    assert rig.gate.reached.wait(PATIENCE_S)
    rig.thread.cancel(load)
    assert rig.thread.poll() == []
    rig.gate.opened.set()
    assert rig.ended(1) == [Loaded(load, 1)]
    assert rig.pool.read(5) == content(0)
    assert rig.pool.read(4) == bytes(len(content(1)))
    rig.thread.cancel(load)  # it ended: nothing comes of it
    assert rig.thread.poll() == []


def test_a_cancelled_load_that_was_not_begun_ends_at_once(rig: Rig) -> None:
    rig.keep(0)
    rig.gate.close()
    rig.thread.store(digest(1), 1)
    assert rig.gate.reached.wait(PATIENCE_S)
    load = rig.thread.load([digest(0)], [5])
    rig.thread.cancel(load)
    assert rig.thread.poll() == [Loaded(load, 0)]
    later = rig.thread.load([digest(0)], [4])
    rig.gate.opened.set()
    assert rig.ended(2) == [Stored(1), Loaded(later, 1)]
    assert rig.pool.read(5) == bytes(len(content(0)))


def test_what_was_found_on_disk_is_in_memory_afterwards(rig: Rig) -> None:
    rig.keep(0, 1, 2)
    assert digest(0) not in blocks_in(rig.memory)
    first = rig.thread.load([digest(0)], [4])
    assert rig.ended(1) == [Loaded(first, 1)]
    rig.until(lambda: digest(0) in blocks_in(rig.memory))
    assert len(blocks_in(rig.memory)) == 2


def test_digests_without_a_block_each_are_a_bug(rig: Rig) -> None:
    with pytest.raises(BugError, match="digests"):
        rig.thread.load([digest(0)], [])


def test_what_breaks_the_thread_is_raised_where_it_is_asked(rig: Rig) -> None:
    rig.thread.store(digest(0), LAYOUT.num_blocks)
    with pytest.raises(BugError, match="no block"):
        rig.ended(1)


def test_counts_are_told_by_level(rig: Rig) -> None:
    rig.keep(0)
    rig.thread.load([digest(0), digest(1)], [2, 3])
    rig.ended(1)
    counts = rig.thread.counts()
    assert (counts["memory"].hits, counts["memory"].misses) == (1, 1)
    assert (counts["disk"].hits, counts["disk"].misses) == (0, 1)
    assert rig.thread.held_bytes() == {"memory": FILE, "disk": 0}


def test_it_closes_twice_and_before_it_starts(tmp_path: Path) -> None:
    levels = Levels([Level("memory", FolderTier(tmp_path, FILE, IDENTITY))])
    thread = TierThread(levels, HostBlockCopier(Pool().region, LAYOUT))
    assert thread.close()
    thread.start()
    assert thread.close()
    assert thread.close()
    levels.close()
