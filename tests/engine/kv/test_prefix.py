"""Names of KV blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.engine.kv.prefix import BlockHasher, PrefixIndex, root_digest

TOKENS = st.lists(st.integers(0, 3), min_size=8, max_size=16)


def names(tokens: list[int], root: bytes = b"", block: int = 4) -> list[bytes]:
    digests: list[bytes] = []
    BlockHasher(block).extend(digests, root, tokens, len(tokens) // block)
    return digests


@given(TOKENS, TOKENS)
def test_two_blocks_share_a_name_exactly_if_all_tokens_up_to_them_agree(
    one: list[int], other: list[int]
) -> None:
    for number, (a, b) in enumerate(zip(names(one), names(other), strict=False), start=1):
        assert (a == b) == (one[: number * 4] == other[: number * 4])


def test_a_name_is_computed_once_and_extended() -> None:
    digests = names([1, 2, 3, 4])
    kept = digests[0]
    BlockHasher(4).extend(digests, b"", [9, 9, 9, 9, 5, 6, 7, 8], 2)
    assert digests[0] is kept
    assert digests == names([1, 2, 3, 4, 5, 6, 7, 8])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"adapter": "X"}, {"salt": "X"}),
        ({"adapter": "XY"}, {"adapter": "X", "salt": "Y"}),
        ({"adapter": "X", "salt": "Y"}, {"adapter": "Y", "salt": "X"}),
        ({"salt": ""}, {}),
        ({"salt": "a"}, {"salt": "a\x00"}),
        ({"a": "bc"}, {"ab": "c"}),
        ({"a": "1", "b": "2"}, {"a": "1b2"}),
    ],
)
def test_extra_keys_never_collide(one: dict[str, str], other: dict[str, str]) -> None:
    assert root_digest(one) != root_digest(other)
    assert names([1] * 8, root_digest(one))[1] != names([1] * 8, root_digest(other))[1]


def test_the_order_in_which_keys_are_given_does_not_matter() -> None:
    assert root_digest({"a": "1", "b": "2"}) == root_digest({"b": "2", "a": "1"})


def test_a_salt_that_is_no_valid_unicode_is_a_salt_like_any_other() -> None:
    assert root_digest({"salt": "\ud800"}) != root_digest({"salt": "?"})


def test_large_token_ids_are_told_apart() -> None:
    assert names([1 << 40] * 4) != names([0] * 4)


def test_the_first_block_of_a_name_stays() -> None:
    index = PrefixIndex()
    assert index.add(3, b"a")
    assert not index.add(4, b"a")
    assert not index.add(3, b"b")
    assert index.find([b"a", b"b"]) == [3]


def test_find_stops_at_the_first_gap() -> None:
    index = PrefixIndex()
    index.add(1, b"a")
    index.add(3, b"c")
    assert index.find([b"a", b"b", b"c"]) == [1]
    assert index.find([]) == []


def test_the_block_unused_longest_is_evicted_and_forgotten() -> None:
    index = PrefixIndex()
    for block, digest in ((1, b"a"), (2, b"b"), (3, b"c")):
        index.add(block, digest)
        index.retire(block)
    index.revive(1)
    index.retire(1)
    assert [index.evict(), index.evict()] == [2, 3]
    assert index.find([b"b"]) == []
    assert index.find([b"a"]) == [1]
    assert index.evict() == 1
    with pytest.raises(KeyError):
        index.evict()


def test_news_are_told_once_in_order_and_only_of_what_is_still_there() -> None:
    index = PrefixIndex()
    for block, digest in ((3, b"a"), (1, b"b"), (2, b"c")):
        index.add(block, digest)
    index.retire(1)
    index.evict()
    assert index.take_news(1) == [(b"a", 3)]
    assert index.take_news(9) == [(b"c", 2)]
    assert index.take_news(9) == []
