"""Python literals become JSON text, however they are cut, and nothing is run."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.frontend.derender.parsers.python_literals import LiteralWriter

Result = tuple[str, str, str]


def written(pieces: list[str]) -> Result:
    """``(JSON text, what is left, verdict)``, restored between any two pieces."""
    writer = LiteralWriter()
    out = ""
    for place, piece in enumerate(pieces):
        text, rest, verdict = writer.feed(piece)
        out += text
        if verdict != "more":
            return out, rest + "".join(pieces[place + 1 :]), verdict
        state = json.loads(json.dumps(writer.state()))
        writer = LiteralWriter()
        writer.restore(state)
    return out + writer.finish(), "", "more"


def in_any_cut(text: str) -> Result:
    whole = written([text])
    assert written(list(text)) == whole
    for place in range(1, len(text)):
        assert written([text[:place], text[place:]]) == whole
    return whole


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@given(VALUES, st.lists(st.integers(0, 200), max_size=6))
@settings(max_examples=300, deadline=None)
def test_what_python_prints_is_read_back(value: Any, places: list[int]) -> None:
    text = f"{value!r} )"
    cuts = sorted({0, len(text), *(place for place in places if place < len(text))})
    found, rest, verdict = written([text[a:b] for a, b in pairwise(cuts)])
    assert (json.loads(found), rest, verdict) == (as_json(value), ")", "done")


@given(st.text("'\"[](){},:=\\ \nr1-.eTrueNone", max_size=24))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_the_same_in_any_cut(text: str) -> None:
    in_any_cut(text)


@given(st.text(max_size=30), st.sampled_from(["'", '"', "'''", '"""']))
@settings(max_examples=200, deadline=None)
def test_a_string_keeps_every_character(text: str, quote: str) -> None:
    escaped = text.replace("\\", "\\\\").replace(quote[0], f"\\{quote[0]}")
    found, _, verdict = written([f"{quote}{escaped}{quote})"])
    assert (json.loads(found), verdict) == (text, "done")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("007", "007)"),
        ("0x1F", "0x1F)"),
        ("1_000", "1_000)"),
        ("nan", "nan)"),
        ("1j", "1j)"),
        ("--1", "--1)"),
        (".", ".)"),
        ("f'{x}'", "f'{x}')"),
        ("b'x'", "b'x')"),
        ("x", "x)"),
        ("*x", "*x)"),
        ("{1, 2}", ", 2})"),
        ("{(1,): 2}", "(1,): 2})"),
        ("[1,,2]", ",2])"),
        ("[1 2]", "2])"),
        ("(,)", ",))"),
        ("{'a'}", "})"),
        ("{'a': }", "})"),
        ("__import__('os').system('true')", "__import__('os').system('true'))"),
    ],
)
def test_what_is_no_literal_is_left(text: str, rest: str) -> None:
    assert in_any_cut(f"{text})")[1:] == (rest, "wrong")


def test_containers_may_be_512_deep_and_no_deeper() -> None:
    assert json.loads(written(["[" * 512 + "]" * 512 + ")"])[0]) is not None
    assert written(["[" * 600]) == ("[" * 512, "[" * 88, "wrong")


def test_a_number_of_a_million_digits_is_no_number() -> None:
    text = "9" * 1_000_000
    assert written([text + ")"]) == ("", text + ")", "wrong")
    assert written(["9" * 400 + ")"])[0] == "9" * 400


def test_a_huge_exponent_keeps_its_digits() -> None:
    assert written(["1e999999)"])[0] == "1e999999"


def test_a_group_may_be_long_but_not_without_end() -> None:
    text = "x" * 4000
    assert in_any_cut_of_few(f"('{text}')|") == (f'"{text}"', "|", "done")
    assert in_any_cut_of_few(f"('{text}', 1)|") == (f'["{text}", 1]', "|", "done")
    shown, rest, verdict = in_any_cut_of_few("('" + "x" * 5000)
    assert (shown, rest, verdict) == (f'"{"x" * 4094}', "x" * 906, "wrong")


def test_every_group_may_be_long() -> None:
    text = "x" * 3000
    assert in_any_cut_of_few(f"[('{text}'), ('{text}')]|") == (f'["{text}", "{text}"]', "|", "done")
    assert in_any_cut(f"({'9' * 390})|") == ("9" * 390, "|", "done")


def in_any_cut_of_few(text: str) -> Result:
    whole = written([text])
    for size in (7, 501, 4095, 4096):
        assert written([text[at : at + size] for at in range(0, len(text), size)]) == whole
    return whole


@pytest.mark.parametrize(
    "state",
    [
        ["value", "", "", None],
        ["other", "", "", None, [[""], 5]],
        ["value", "x", "", None, [[""], 5]],
        ["value", "[" * 513, "", None, [[""], 5]],
        ["string", "", "", None, [[""], 5]],
        ["string", "", "", ["`", False, 1, 0, ""], [[""], 5]],
        ["string", "", "", ["'", False, 2, 0, ""], [[""], 5]],
        ["string", "", "", ["'", False, 1, 0, "x"], [[""], 5]],
        ["value", "", "", None, [[], 5]],
        ["value", "", "", None, [[""], -1]],
    ],
)
def test_what_is_no_state_is_refused(state: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        LiteralWriter().restore(state)
