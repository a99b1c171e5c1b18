"""The JSON scanner agrees with the json module on where a value ends and on what is none."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.frontend.derender.parsers.json_scan import DEEPEST, JsonScanner

READER = json.JSONDecoder(strict=False)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
SOUP = st.lists(
    st.sampled_from([*'{}[],:"\\ \n01.e-', "true", "nul", '"a"', '{"a":', "[1", "\\u00e9", "é"]),
    max_size=14,
).map("".join)


def scan(text: str) -> tuple[str, int, bool, bool]:
    scanner = JsonScanner()
    shown, end = scanner.feed(text)
    return shown, end, scanner.done, scanner.wrong


def scan_through_checkpoints(text: str) -> tuple[str, int, bool, bool]:
    scanner, shown, end = JsonScanner(), "", 0
    for char in text:
        state = json.loads(json.dumps(scanner.state()))
        scanner = JsonScanner()
        scanner.restore(state)
        more, read = scanner.feed(char)
        shown, end = shown + more, end + read
        if scanner.done or scanner.wrong:
            break
    return shown, end, scanner.done, scanner.wrong


@given(VALUES, st.sampled_from([None, 1]), st.booleans(), st.sampled_from(["", " x", "}", ",[1]"]))
@settings(max_examples=200, deadline=None)
def test_a_value_ends_where_it_ends(
    value: Any, indent: int | None, ascii_only: bool, after: str
) -> None:
    text = json.dumps([value], indent=indent, ensure_ascii=ascii_only)
    assert scan(text + after) == (text, len(text), True, False)


@given(SOUP)
@settings(max_examples=500, deadline=None)
def test_agrees_with_the_json_module(soup: str) -> None:
    text = '{"k":' + soup
    shown, end, done, wrong = scan(text)
    try:
        expected, length = READER.raw_decode(text)
    except ValueError:
        assert not done
    else:
        assert (json.loads(shown), end, done, wrong) == (expected, length, True, False)


@given(SOUP)
@settings(max_examples=300, deadline=None)
def test_no_cut_changes_what_is_read(soup: str) -> None:
    for text in (soup, '{"k":' + soup, "[1," + soup):
        assert scan_through_checkpoints(text) == scan(text)


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_no_begin_of_a_value_is_wrong(value: Any) -> None:
    text = json.dumps({"k": value})
    for end in range(1, len(text)):
        assert scan(text[:end]) == (text[:end], end, False, False)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("", 0),
        ("nul!", 3),
        ("tru ", 3),
        ("[1,]", 3),
        ("[,", 1),
        ("{,", 1),
        ('{"a":1,}', 7),
        ('{"a" 1}', 5),
        ("{a:1}", 1),
        ("{'a':1}", 1),
        ("[01]", 2),
        ("[-]", 2),
        ("[1.]", 3),
        ("[1e]", 3),
        ("[.5]", 1),
        ("[+1]", 1),
        ("[NaN]", 1),
        ("[1}", 2),
        ('{"a":1]', 6),
        ('"\\q"', 2),
        ('"\\u12g4"', 5),
        ("[1\v]", 2),
    ],
)
def test_says_which_character_is_wrong(text: str, end: int) -> None:
    shown, at, done, wrong = scan(text)
    assert (shown, at, done, wrong) == (text[:end], end, False, bool(text))


def test_raw_control_characters_in_strings_become_escapes() -> None:
    shown, end, done, _ = scan('{"a\tb": "c\nd\re\x00\x1f", "n": "\u2028\x7f"}\n')
    assert shown == '{"a\\tb": "c\\nd\\re\\u0000\\u001f", "n": "\u2028\x7f"}'
    assert json.loads(shown) == {"a\tb": "c\nd\re\0\x1f", "n": "\u2028\x7f"}
    assert (end, done) == (29, True)


def test_raw_control_characters_between_values_stay() -> None:
    text = '{\n\t"a":\r\n 1\n}'
    assert scan(text) == (text, len(text), True, False)


def test_a_number_ends_with_the_character_after_it() -> None:
    scanner = JsonScanner()
    assert scanner.feed("-1.5e+7") == ("-1.5e+7", 7)
    assert not scanner.done
    assert scanner.feed(",") == ("", 0)
    assert scanner.done


def test_a_value_may_begin_in_the_middle_of_a_text() -> None:
    assert JsonScanner().feed('x = {"a": 1};', 4) == ('{"a": 1}', 12)


def test_values_may_be_nested_so_deep_and_no_deeper() -> None:
    deep = "[" * DEEPEST + "]" * DEEPEST
    assert scan(deep) == (deep, len(deep), True, False)
    assert scan("[" + deep) == ("[" * DEEPEST, DEEPEST, False, True)
    assert scan('{"a":' * 100_000)[1:] == (len('{"a":') * DEEPEST, False, True)


def test_the_state_does_not_grow_with_the_text() -> None:
    scanner = JsonScanner()
    scanner.feed('{"rows": [' + '{"a": "b"},' * 10_000 + '{"text": "' + "x" * 100_000 + "\\u00")
    assert len(json.dumps(scanner.state())) < 60


@pytest.mark.parametrize(
    "state",
    [
        None,
        7,
        "ab",
        [],
        ["string"],
        ["nowhere", ""],
        ["string", None],
        ["string", "(("],
        ["string", "[" * (DEEPEST + 1)],
        [["string"], ""],
        ["string", "", ""],
    ],
)
def test_a_foreign_state_is_refused(state: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        JsonScanner().restore(state)
