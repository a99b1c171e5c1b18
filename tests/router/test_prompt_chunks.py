"""Names of a text's starts: equal where the starts are, and nowhere else."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.router.policy.chunks import CHUNK, Chunks

lengths = st.integers(0, 5 * CHUNK)


def names(tokens: list[int], salt: str = "") -> list[bytes]:
    chunks = Chunks(salt)
    chunks.extend(tokens)
    return chunks.names


@pytest.mark.parametrize(
    ("length", "count"),
    [(0, 0), (1, 0), (CHUNK - 1, 0), (CHUNK, 1), (CHUNK + 1, 1), (3 * CHUNK, 3)],
)
def test_every_full_chunk_has_a_name(length: int, count: int) -> None:
    assert len(names(list(range(length)))) == count


@settings(max_examples=50)
@given(lengths, st.lists(lengths, max_size=6))
def test_a_text_that_grows_has_the_names_of_one_that_came_at_once(
    length: int, cuts: list[int]
) -> None:
    text = [n % 50 for n in range(length)]
    grown = Chunks("s")
    for start, end in pairwise([0, *sorted(cut for cut in cuts if cut <= length), length]):
        grown.extend(text[start:end])
    assert grown.names == names(text, "s")


@settings(max_examples=50)
@given(st.integers(1, 5 * CHUNK), st.data())
def test_an_edited_text_has_the_names_before_the_edit_and_no_others(
    length: int, data: st.DataObject
) -> None:
    text = [7] * length
    at = data.draw(st.integers(0, length - 1))
    edited = [*text[:at], 8, *text[at + 1 :]]
    before, after = names(text), names(edited)
    same = at // CHUNK
    assert after[:same] == before[:same]
    assert not set(after[same:]) & set(before)


def test_what_is_cut_out_in_the_middle_leaves_only_the_common_start() -> None:
    head, thoughts, rest = [1] * 2 * CHUNK, [2] * CHUNK, [3] * 2 * CHUNK
    whole, stripped = names([*head, *thoughts, *rest]), names([*head, *rest])
    assert whole[:2] == stripped[:2]
    assert not set(whole[2:]) & set(stripped)


def test_salts_have_no_name_in_common() -> None:
    text = list(range(3 * CHUNK))
    assert not set(names(text, "a")) & set(names(text, "b"))
    assert not set(names(text, "")) & set(names(text, "\ud800"))


def test_a_salt_that_spells_tokens_is_no_part_of_the_text() -> None:
    spelt = "\1" + 7 * "\0"
    assert not set(names([1] * CHUNK, CHUNK * spelt)) & set(names([1] * 2 * CHUNK))
