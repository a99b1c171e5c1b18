"""Whitespace around calls is markup, and content everywhere else."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.frontend.derender.events import TextDelta
from splitserve.frontend.derender.parsers.content import Content

CALL = None


def shown(steps: list[str | None]) -> str:
    """The content of text and calls, in this order; restored between any two."""
    content = Content()
    text = ""
    for step in steps:
        if step is CALL:
            content.call()
        else:
            text += "".join(event.text for event in content.feed(step))
        state = json.loads(json.dumps(content.state()))
        content = Content()
        content.restore(state)
    return text + "".join(event.text for event in content.finish())


def reference(steps: list[str | None]) -> str:
    """Whitespace at the end of what is before a call, and all that is between or after calls."""
    parts = [""]
    for step in steps:
        if step is CALL:
            parts.append("")
        else:
            parts[-1] += step
    parts[1:] = [part if part.strip() else "" for part in parts[1:]]
    return "".join(part.rstrip() for part in parts[:-1]) + parts[-1]


@given(st.lists(st.none() | st.text("a \n", max_size=4), max_size=10))
@settings(max_examples=300, deadline=None)
def test_equals_what_the_whole_text_gives(steps: list[str | None]) -> None:
    assert shown(steps) == reference(steps)


def test_text_is_given_at_once_but_for_the_space_at_its_end() -> None:
    content = Content()
    assert content.feed("a b \n") == [TextDelta("a b")]
    assert content.feed("c") == [TextDelta(" \nc")]


def test_space_before_a_call_is_dropped() -> None:
    assert shown(["Look.\n\n", CALL]) == "Look."


def test_space_between_calls_is_no_content() -> None:
    assert shown([CALL, "\n", CALL, " \n"]) == ""


def test_text_after_a_call_keeps_its_space() -> None:
    assert shown([CALL, "\nDone. ", "\n"]) == "\nDone. \n"


def test_text_without_a_call_is_as_it_was() -> None:
    assert shown([" \n", "a", "\n "]) == " \na\n "
