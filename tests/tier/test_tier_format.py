"""A block's name and its file's beginning stand for exactly one content."""

import msgspec
import pytest
from tier_rig import BLOCK, IDENTITY, LAYOUT, content, digest

from splitserve.errors import BugError
from splitserve.tier.format import HEADER_BYTES, checksum, header, identity


def test_a_header_has_the_same_size_whatever_it_says() -> None:
    assert len(header(IDENTITY, digest(1), 0)) == HEADER_BYTES
    assert len(header(IDENTITY, digest(2), 2**32 - 1)) == HEADER_BYTES


def test_a_block_has_all_layers() -> None:
    assert IDENTITY.nbytes == 3 * BLOCK
    assert IDENTITY.file_bytes == HEADER_BYTES + 3 * BLOCK


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "float16"},
        {"itemsize": 4},
        {"num_layers": 4},
        {"num_kv_heads": 1, "total_kv_heads": 2},
        {"first_kv_head": 2, "total_kv_heads": 4},
        {"head_dim": 8},
        {"block_size": 4},
    ],
    ids=lambda change: "-".join(change),
)
def test_another_layout_is_another_folder(change: dict[str, object]) -> None:
    other = identity("a model", msgspec.structs.replace(LAYOUT, **change))
    assert other.folder != IDENTITY.folder


def test_another_model_is_another_folder() -> None:
    assert identity("another model", LAYOUT).folder != IDENTITY.folder


def test_a_pool_of_another_size_is_the_same_folder() -> None:
    assert identity("a model", LAYOUT.with_blocks(1000)) == IDENTITY


def test_a_model_that_says_how_many_heads_it_has_is_the_same_as_one_that_holds_all() -> None:
    told = msgspec.structs.replace(LAYOUT, total_kv_heads=LAYOUT.num_kv_heads)
    assert identity("a model", told) == IDENTITY


def test_every_block_has_its_own_header() -> None:
    checked = checksum([memoryview(content(1))])
    headers = {
        header(IDENTITY, digest(1), checked),
        header(IDENTITY, digest(2), checked),
        header(IDENTITY, digest(1), checked ^ 1),
        header(identity("another model", LAYOUT), digest(1), checked),
    }
    assert len(headers) == 4


def test_a_checksum_does_not_depend_on_how_the_bytes_are_cut() -> None:
    view = memoryview(content(1))
    whole = checksum([view])
    for cut in (1, BLOCK, len(view) - 1):
        assert checksum([view[:cut], view[cut:]]) == whole
    assert checksum([view[1:], view[:1]]) != whole


@pytest.mark.parametrize("wrong", [b"", b"short", bytes(17)], ids=["empty", "short", "long"])
def test_what_is_no_digest_gets_no_file(wrong: bytes) -> None:
    with pytest.raises(BugError, match="16 bytes"):
        IDENTITY.name(wrong)
