"""Markers are found in text however it is cut."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.frontend.derender.parsers.checkpoint import hold
from splitserve.frontend.derender.parsers.marks import MarkFinder

MARKERS = ("<a>", "<a><b>", "</a>", "<<", "b")


def found(pieces: list[str], markers: tuple[str, ...] = MARKERS) -> list[tuple[str, str | None]]:
    """All text, with the marker after each part of it."""
    finder = MarkFinder(markers)
    shown = ""
    marks: list[tuple[str, str | None]] = []
    for piece in pieces:
        rest = piece
        while True:
            before, marker, rest = finder.feed(rest)
            shown += before
            if marker is None:
                break
            marks.append((shown, marker))
            shown = ""
    rest = finder.finish()
    while rest[1] is not None:
        marks.append((shown + rest[0], rest[1]))
        shown = ""
        finder.feed(rest[2])
        rest = finder.finish()
    return [*marks, (shown + rest[0], None)]


def reference(text: str, markers: tuple[str, ...]) -> list[tuple[str, str | None]]:
    """The first marker, the longest of those at one place, and so on after it."""
    longest_first = sorted(markers, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)
    ends = [*parts[1::2], None]
    return list(zip(parts[::2], ends, strict=True))


@given(st.lists(st.text("<a>b/x", max_size=5), max_size=8))
@settings(max_examples=300, deadline=None)
def test_equals_a_search_through_the_whole_text(pieces: list[str]) -> None:
    assert found(pieces) == reference("".join(pieces), MARKERS)


@given(st.text("<a>b/x", max_size=20))
@settings(max_examples=200, deadline=None)
def test_what_is_held_back_is_shorter_than_the_longest_marker(text: str) -> None:
    finder = MarkFinder(MARKERS)
    while True:
        _, marker, text = finder.feed(text)
        if marker is None:
            break
    assert len(finder.held) < max(map(len, MARKERS))


def test_text_without_a_marker_is_given_at_once() -> None:
    finder = MarkFinder(("<think>",))
    assert finder.feed("a < b") == ("a < b", None, "")
    assert finder.held == ""


def test_a_marker_that_may_become_a_longer_one_is_held_back() -> None:
    finder = MarkFinder(("<a>", "<a><b>"))
    assert finder.feed("x<a>") == ("x", None, "")
    assert finder.held == "<a>"
    assert finder.feed("<b>y") == ("", "<a><b>", "y")


def test_a_marker_that_did_not_become_a_longer_one_counts() -> None:
    finder = MarkFinder(("<a>", "<a><b>"))
    finder.feed("<a><")
    assert finder.feed("c") == ("", "<a>", "<c")
    finder.feed("<a>")
    assert finder.finish() == ("", "<a>", "")


def test_held_text_is_text_when_nothing_follows() -> None:
    finder = MarkFinder(("<think>",))
    assert finder.feed("a<thi") == ("a", None, "")
    assert finder.finish() == ("<thi", None, "")
    assert finder.finish() == ("", None, "")


@pytest.mark.parametrize("held", ["x", "<think>", "x<", "<thinx", 5, None, ["<"]])
def test_a_finder_is_not_made_to_hold_what_is_no_begin_of_a_marker(held: object) -> None:
    with pytest.raises(ValueError, match="this"):
        hold(MarkFinder(("<think>",)), held)


def test_a_finder_goes_on_from_what_it_held() -> None:
    finder = MarkFinder(("<think>",))
    hold(finder, "<thi")
    assert finder.feed("nk>a") == ("", "<think>", "a")
