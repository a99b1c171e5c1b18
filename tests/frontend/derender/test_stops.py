"""Stop strings end an answer at the same place however its text is cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.frontend.derender.stops import StopMatcher

CHARS = "abAB한"


def run(
    pieces: list[str], stops: list[str], *, include_stop: bool = False
) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, include_stop=include_stop)
    shown = ""
    for piece in pieces:
        shown += matcher.feed(piece)
        if matcher.matched is not None:
            return shown, matcher.matched
    return shown + matcher.finish(), None


def reference(text: str, stops: list[str], *, include_stop: bool) -> tuple[str, str | None]:
    """Character by character: the first prefix that ends with a stop string, the longest one."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end if include_stop else end - len(stop)], stop
    return text, None


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    return draw(st.lists(st.text(CHARS, max_size=6), max_size=12))


@given(
    cut_texts(),
    st.lists(st.text(CHARS, min_size=1, max_size=5), max_size=4),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_equals_a_search_through_the_whole_text(
    pieces: list[str], stops: list[str], include_stop: bool
) -> None:
    found = run(pieces, stops, include_stop=include_stop)
    assert found == reference("".join(pieces), stops, include_stop=include_stop)


def test_a_beginning_of_a_stop_string_is_withheld_and_then_the_stop_matches() -> None:
    matcher = StopMatcher(["DEFGHIJ"], include_stop=False)
    assert [matcher.feed(piece) for piece in ("D", "EF", "G", "HI")] == ["", "", "", ""]
    assert matcher.feed("J") == ""
    assert matcher.matched == "DEFGHIJ"


def test_withheld_text_is_released_once_it_cannot_match() -> None:
    matcher = StopMatcher(["DEFGHIJ"], include_stop=False)
    assert [matcher.feed(piece) for piece in ("D", "EF", "GX")] == ["", "", "DEFGX"]


def test_only_what_may_still_match_is_withheld() -> None:
    matcher = StopMatcher(["aab"], include_stop=False)
    assert [matcher.feed(char) for char in "aaaa"] == ["", "", "a", "a"]
    assert matcher.finish() == "aa"


@pytest.mark.parametrize("cut", range(len("alpha beta gamma") + 1))
def test_a_stop_string_may_span_pieces(cut: int) -> None:
    text = "alpha beta gamma"
    pieces = [text[:cut], text[cut:]]
    assert run(pieces, ["ta ga"]) == ("alpha be", "ta ga")
    assert run(pieces, ["ta ga"], include_stop=True) == ("alpha beta ga", "ta ga")


def test_the_stop_string_that_is_complete_first_wins() -> None:
    assert run(["one two three"], ["three", "two"]) == ("one ", "two")
    assert run(["xabcx"], ["abcx", "bc"]) == ("xa", "bc")


def test_of_stop_strings_complete_together_the_longest_wins() -> None:
    assert run(["xab"], ["b", "ab"]) == ("x", "ab")


def test_without_stop_strings_nothing_is_withheld() -> None:
    matcher = StopMatcher([], include_stop=False)
    assert matcher.feed("anything") == "anything"
    assert matcher.finish() == ""
