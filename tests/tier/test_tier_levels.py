"""Memory in front of disk: what goes where, and what a failing level costs."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tier_rig import FILE, IDENTITY, Landing, Ticks, blocks_in, content, digest, parts_of

from splitserve.tier.levels import Level, Levels
from splitserve.tier.store import FolderTier


@dataclass
class Both:
    """Two blocks fit in memory, four on disk."""

    memory: Path
    disk: Path
    levels: Levels

    def store(self, *numbers: int) -> None:
        for number in numbers:
            assert self.levels.store(digest(number), parts_of(content(number)))

    def load(self, number: int) -> int | None:
        """The level where it was found; the bytes are right then."""
        landing = Landing()
        found = self.levels.load(digest(number), landing.parts)
        assert found is None or landing.holds(number)
        return found

    def where(self) -> tuple[set[bytes], set[bytes]]:
        return blocks_in(self.memory), blocks_in(self.disk)


def digests(*numbers: int) -> set[bytes]:
    return {digest(number) for number in numbers}


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    ticks = Ticks()
    slow = Level("disk", FolderTier(disk, 4 * FILE, IDENTITY, now_ns=ticks))
    fast = Level("memory", FolderTier(memory, 2 * FILE, IDENTITY, slow.take, ticks))
    levels = Levels([fast, slow])
    yield Both(memory, disk, levels)
    levels.close()


def test_a_block_is_stored_in_memory_alone(both: Both) -> None:
    both.store(1)
    assert both.where() == (digests(1), set())
    assert both.load(1) == 0


def test_what_memory_has_no_room_for_goes_to_disk(both: Both) -> None:
    both.store(1, 2, 3)
    assert both.where() == (digests(2, 3), digests(1))
    assert both.load(1) == 1
    assert both.levels.counts()["memory"].evictions == 1


def test_what_is_found_on_disk_is_found_in_memory_next_time(both: Both) -> None:
    both.store(1, 2, 3)
    found = both.levels.load(digest(1), Landing().parts)
    assert found == 1
    both.levels.promote(digest(1), found)
    assert both.where() == (digests(1, 3), digests(1, 2))
    assert both.load(1) == 0


def test_a_block_that_went_meanwhile_is_not_promoted(both: Both) -> None:
    both.store(1, 2, 3)
    found = both.levels.load(digest(1), Landing().parts)
    assert found is not None
    (file,) = (both.disk / IDENTITY.folder).iterdir()
    file.unlink()
    both.levels.promote(digest(1), found)
    assert both.load(1) is None


def test_the_disk_forgets_what_left_memory_the_longest_time_ago(both: Both) -> None:
    both.store(*range(1, 8))
    assert both.where() == (digests(6, 7), digests(2, 3, 4, 5))
    assert both.load(1) is None


def test_what_is_wrong_in_memory_is_looked_for_on_disk(both: Both) -> None:
    both.store(1, 2, 3)
    found = both.levels.load(digest(1), Landing().parts)
    assert found is not None
    both.levels.promote(digest(1), found)
    file = both.memory / IDENTITY.name(digest(1))
    file.write_bytes(bytes(FILE))
    assert both.load(1) == 1
    counts = both.levels.counts()
    assert (counts["memory"].corrupt, counts["disk"].corrupt) == (1, 0)


def test_a_miss_is_counted_in_each_level(both: Both) -> None:
    assert both.load(1) is None
    counts = both.levels.counts()
    assert (counts["memory"].misses, counts["disk"].misses) == (1, 1)


def test_what_is_held_is_told_of_each_level(both: Both) -> None:
    both.store(1, 2, 3)
    assert both.levels.held_bytes() == {"memory": 2 * FILE, "disk": FILE}


def test_a_level_that_fails_is_gone_around_and_said_once(
    both: Both, caplog: pytest.LogCaptureFixture
) -> None:
    (both.memory / ".quota").unlink()
    with caplog.at_level(logging.WARNING):
        both.store(1, 2)
    assert both.where() == (set(), digests(1, 2))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "KV tier in memory" in caplog.text


def test_without_a_disk_what_leaves_memory_is_gone(tmp_path: Path) -> None:
    levels = Levels([Level("memory", FolderTier(tmp_path, FILE, IDENTITY, now_ns=Ticks()))])
    for number in (1, 2):
        assert levels.store(digest(number), parts_of(content(number)))
    assert levels.load(digest(1), Landing().parts) is None
    assert levels.load(digest(2), Landing().parts) == 0
    levels.close()
