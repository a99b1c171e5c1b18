"""Shapes match a whole text, and know each of its beginnings."""

from splitserve.frontend.derender.parsers.shape import (
    OBJECT_AHEAD,
    SPACES,
    TOOL_NAME,
    Shape,
    each,
)

SHAPE = Shape(SPACES, TOOL_NAME, *each("[ARGS]"), SPACES, OBJECT_AHEAD)


def test_every_begin_of_a_match_may_grow_into_it() -> None:
    text = " \n weather[ARGS]  "
    assert all(SHAPE.may_grow(text[:end]) for end in range(len(text) + 1))
    found = SHAPE.match(text + '{"a"')
    assert found is not None
    assert (found[0], found["name"]) == (text, "weather")


def test_what_is_no_begin_can_not_grow() -> None:
    for text in ("[", "weather x", "weather[ARG ", "weather[ARGS]x", "weather{", "x" * 257):
        assert not SHAPE.may_grow(text)
        assert SHAPE.match(text) is None


def test_whitespace_is_bounded() -> None:
    assert SHAPE.may_grow(" " * 64)
    assert not SHAPE.may_grow(" " * 65)
