"""One folder of blocks: found by digest alone, never more than its bound, never wrong bytes."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tier_rig import (
    FILE,
    IDENTITY,
    LAYOUT,
    Landing,
    Ticks,
    blocks_in,
    content,
    digest,
    measured,
    parts_of,
)

from splitserve.errors import BugError
from splitserve.tier.format import HEADER_BYTES, Identity, identity
from splitserve.tier.quota import Quota
from splitserve.tier.store import FolderTier

ROOM = 4
"""Blocks that fit."""

Open = Callable[..., FolderTier]


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def opened(tmp_path: Path, ticks: Ticks) -> Iterator[Open]:
    """Makes handles on one folder; all are closed in the end."""
    handles: list[FolderTier] = []

    def make(
        room: int = ROOM,
        of: Identity = IDENTITY,
        evicted: Callable[[str, Path], object] = lambda _name, _file: None,
    ) -> FolderTier:
        handle = FolderTier(tmp_path, room * FILE, of, evicted, ticks)
        handles.append(handle)
        return handle

    yield make
    for handle in handles:
        handle.close()


def put(store: FolderTier, number: int) -> bool:
    return store.put(digest(number), parts_of(content(number)))


def get(store: FolderTier, number: int) -> bool:
    """Whether the block is found; with the right bytes, then."""
    landing = Landing()
    found = store.get(digest(number), landing.parts)
    assert not found or landing.holds(number)
    return found


def file_of(store: FolderTier, number: int) -> Path:
    return store.file(digest(number))[1]


def test_a_block_is_found_by_its_digest_alone(opened: Open) -> None:
    store = opened()
    assert put(store, 1)
    assert get(store, 1)
    assert not get(store, 2)
    counts = store.counts()
    assert (counts.hits, counts.misses, counts.nbytes) == (1, 1, IDENTITY.nbytes)


def test_another_handle_finds_it_too(opened: Open) -> None:
    put(opened(), 1)
    assert get(opened(), 1)


def test_another_model_or_layout_never_finds_it(opened: Open) -> None:
    put(opened(), 1)
    assert not get(opened(of=identity("another model", LAYOUT)), 1)
    wider = identity("a model", LAYOUT.with_blocks(9))
    assert get(opened(of=wider), 1)


def test_a_file_put_under_another_models_name_is_not_taken_for_it(
    opened: Open, tmp_path: Path
) -> None:
    other = opened(of=identity("another model", LAYOUT))
    put(other, 2)
    store = opened()
    put(store, 1)
    file_of(store, 1).replace(file_of(other, 1))
    assert not get(other, 1)
    assert other.counts().corrupt == 1


def test_nobody_else_can_read_what_is_stored(opened: Open, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = opened()
        put(store, 1)
    finally:
        os.umask(before)
    path = file_of(store, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / ".quota").stat().st_mode) == 0o600


def test_the_block_unused_for_the_longest_time_goes_first(opened: Open, tmp_path: Path) -> None:
    store = opened()
    for number in range(ROOM):
        assert put(store, number)
    assert get(store, 0)
    assert put(store, 1)  # it is there: used, not written again
    assert put(store, 9)
    assert blocks_in(tmp_path) == {digest(number) for number in (0, 1, 3, 9)}
    assert store.counts().evictions == 1


def test_what_goes_is_shown_while_it_is_still_there(opened: Open) -> None:
    shown: list[tuple[str, int]] = []
    store = opened(1, evicted=lambda name, file: shown.append((name, file.stat().st_size)))
    put(store, 1)
    put(store, 2)
    assert shown == [(IDENTITY.name(digest(1)), FILE)]


def test_a_block_used_just_before_it_would_go_stays(opened: Open, tmp_path: Path) -> None:
    other = opened(2)
    store = opened(2, evicted=lambda _name, _file: get(other, 1))
    put(store, 1)
    put(store, 2)
    put(store, 3)
    assert digest(1) in blocks_in(tmp_path)
    assert digest(2) not in blocks_in(tmp_path)


def test_a_block_that_never_fits_makes_nobody_go(opened: Open, tmp_path: Path) -> None:
    put(opened(1), 1)
    assert not put(opened(0), 2)
    assert blocks_in(tmp_path) == {digest(1)}


def test_blocks_of_all_models_share_the_bound(opened: Open, tmp_path: Path) -> None:
    other = identity("another model", LAYOUT)
    theirs = opened(2, of=other)
    put(theirs, 1)
    put(theirs, 2)
    ours = opened(2)
    assert put(ours, 3)
    assert blocks_in(tmp_path) == {digest(3)}
    assert blocks_in(tmp_path, other) == {digest(2)}
    assert measured(tmp_path) == (2 * FILE, 2 * FILE)


def test_files_that_are_not_ours_are_neither_counted_nor_removed(
    opened: Open, tmp_path: Path
) -> None:
    (tmp_path / "letters").mkdir()
    mine = (tmp_path / "letters" / "one", tmp_path / "two")
    for file in mine:
        file.write_bytes(bytes(10 * FILE))
    store = opened(1)
    put(store, 1)
    put(store, 2)
    store.empty()
    assert all(file.exists() for file in mine)


def test_a_block_of_the_wrong_size_is_a_bug(opened: Open) -> None:
    with pytest.raises(BugError, match="bytes"):
        opened().put(digest(1), [memoryview(b"short")])


def test_taking_a_file_from_another_store_keeps_the_block(
    opened: Open, tmp_path_factory: pytest.TempPathFactory, ticks: Ticks
) -> None:
    store = opened()
    put(store, 1)
    other = FolderTier(tmp_path_factory.mktemp("other"), FILE, IDENTITY, now_ns=ticks)
    assert other.take(*store.file(digest(1)))
    assert get(other, 1)
    assert measured(file_of(other, 1).parents[1]) == (FILE, FILE)
    other.close()


def test_emptied_it_holds_nothing(opened: Open, tmp_path: Path) -> None:
    store = opened()
    put(store, 1)
    store.empty()
    assert not get(store, 1)
    assert measured(tmp_path) == (0, 0)


# Corruption

REGIONS = {
    "magic": 0,
    "version": 8,
    "checksum": 12,
    "fingerprint": 16,
    "digest": 32,
    "length": 48,
    "padding": 56,
    "first_byte": HEADER_BYTES,
    "second_layer": HEADER_BYTES + LAYOUT.block_bytes,
    "last_byte": FILE - 1,
}


def flip(path: Path, at: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def assert_removed(store: FolderTier, root: Path) -> None:
    """Block 1 is missed, once as corrupt; then it can be stored again."""
    assert not get(store, 1)
    assert store.counts().corrupt == 1
    assert digest(1) not in blocks_in(root)
    assert not get(store, 1)
    assert store.counts().corrupt == 1
    assert put(store, 1)
    assert get(store, 1)


@pytest.mark.parametrize("region", sorted(REGIONS))
def test_a_changed_byte_makes_a_miss_and_removes_the_file(
    opened: Open, tmp_path: Path, region: str
) -> None:
    store = opened()
    put(store, 1)
    flip(file_of(store, 1), REGIONS[region])
    assert_removed(store, tmp_path)
    assert measured(tmp_path) == (FILE, FILE)


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES, FILE - 1, FILE + 1])
def test_a_file_of_another_size_makes_a_miss_and_is_removed(
    opened: Open, tmp_path: Path, size: int
) -> None:
    store = opened()
    put(store, 1)
    os.truncate(file_of(store, 1), size)
    assert_removed(store, tmp_path)


def test_two_files_that_were_swapped_are_both_removed(opened: Open, tmp_path: Path) -> None:
    store = opened()
    put(store, 1)
    put(store, 2)
    first, second = file_of(store, 1), file_of(store, 2)
    aside = tmp_path / "aside"
    first.replace(aside)
    second.replace(first)
    aside.replace(second)
    assert not get(store, 1)
    assert not get(store, 2)
    assert blocks_in(tmp_path) == set()


@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, FILE - 1), bits=st.integers(1, 255))
def test_no_changed_byte_anywhere_is_ever_loaded(at: int, bits: int) -> None:
    with TemporaryDirectory() as folder:
        store = FolderTier(Path(folder), FILE, IDENTITY)
        put(store, 1)
        flip(file_of(store, 1), at, bits)
        assert not get(store, 1)
        assert blocks_in(Path(folder)) == set()
        store.close()


# The bound

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["put", "get"]), st.integers(0, 1), st.integers(0, 9)), max_size=60
)


@settings(max_examples=40, deadline=None)
@given(actions=ACTIONS)
def test_whatever_two_handles_do_the_bound_holds_and_the_oldest_goes(
    actions: list[tuple[str, int, int]],
) -> None:
    with TemporaryDirectory() as folder:
        root, ticks = Path(folder), Ticks()
        stores = [FolderTier(root, ROOM * FILE, IDENTITY, now_ns=ticks) for _ in range(2)]
        used: dict[int, None] = {}  # what must be there, in the order of its last use
        for action, handle, number in actions:
            if action == "put":
                assert put(stores[handle], number)
                if number not in used and len(used) == ROOM:
                    del used[next(iter(used))]
                used.pop(number, None)
                used[number] = None
            else:
                assert get(stores[handle], number) == (number in used)
                if number in used:
                    del used[number]
                    used[number] = None
            assert blocks_in(root) == {digest(there) for there in used}
            assert measured(root) == (len(used) * FILE, len(used) * FILE)
        for store in stores:
            store.close()


def test_a_count_that_a_killed_process_left_too_high_is_set_right(
    opened: Open, tmp_path: Path
) -> None:
    store = opened()
    put(store, 1)
    quota = Quota(tmp_path / ".quota")
    with quota.locked():
        quota.add(ROOM * FILE)
    quota.close()
    for number in (2, 3, 4):
        assert put(store, number)
    assert measured(tmp_path) == (4 * FILE, 4 * FILE)
    assert store.counts().evictions == 0


def test_a_full_disk_leaves_nothing_behind(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, parts: object, offset: int) -> None:
        os.pwrite(fd, b"some", offset)
        raise OSError(28, "No space left on device")

    store = opened()
    monkeypatch.setattr("splitserve.tier.store.write_from", full)
    with pytest.raises(OSError, match="No space left"):
        put(store, 1)
    assert measured(tmp_path) == (0, 0)
    assert not get(store, 1)


def test_a_lock_that_is_never_let_go_is_an_error_not_a_hang(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splitserve.tier.quota.LOCK_WAIT_S", 0.01)
    store = opened()
    quota = Quota(tmp_path / ".quota")
    with quota.locked(), pytest.raises(TimeoutError, match="locked"):
        put(store, 1)
    quota.close()


def test_without_its_lock_file_nothing_is_added(opened: Open, tmp_path: Path) -> None:
    store = opened()
    (tmp_path / ".quota").unlink()
    with pytest.raises(FileNotFoundError, match="removed"):
        put(store, 1)
    assert blocks_in(tmp_path) == set()
