"""A parameter's text becomes JSON text by the type that the schema gives it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.frontend.derender.parsers.base import ToolSpec
from splitserve.frontend.derender.parsers.typed_args import (
    ValueWriter,
    parameter_kinds,
    schema_kinds,
)

ALL = ("string", "integer", "number", "boolean", "null", "object", "array")


def written(pieces: list[str], *kinds: str) -> str:
    """The JSON text, restored between any two pieces; "wrong" and what is left where it ends."""
    writer = ValueWriter()
    out = writer.begin(frozenset(kinds))
    for place, piece in enumerate(pieces):
        text, rest = writer.feed(piece)
        out += text
        if rest:
            return f"{out} wrong {rest}{''.join(pieces[place + 1 :])}"
        state = json.loads(json.dumps(writer.state()))
        writer = ValueWriter()
        writer.restore(state)
    end = writer.close()
    return f"{out} wrong" if end is None else out + end


@pytest.mark.parametrize(
    ("text", "kinds", "value"),
    [
        ("5", ["string"], "5"),
        ("5", ["integer"], 5),
        (" -5 \n", ["integer"], -5),
        ("5.0", ["integer"], 5.0),
        ("5.5", ["integer"], "5.5"),
        ("1e3", ["integer"], "1e3"),
        ("5", ["number"], 5),
        ("-0.5e-3", ["number"], -0.0005),
        ("+5", ["number"], "+5"),
        ("05", ["number"], "05"),
        (".5", ["number"], ".5"),
        ("NaN", ["number"], "NaN"),
        ("Infinity", ["number"], "Infinity"),
        ("\u0665", ["integer"], "\u0665"),
        ("True", ["boolean"], True),
        ("false", ["boolean"], False),
        ("1", ["boolean"], "1"),
        ("TRUE", ["boolean"], "TRUE"),
        ("None", ["null"], None),
        ("null", ["null", "string"], None),
        ("nullable", ["null", "string"], "nullable"),
        ("5", ["integer", "string"], 5),
        ("five", ["integer", "string"], "five"),
        ("", ["integer"], ""),
        (" ", ["array"], " "),
        ("[1]", ["array"], [1]),
        (' {"a": [true]}\n', ["object"], {"a": [True]}),
        ("[1]", ["object"], "[1]"),
        ("[1] ", ["array", "string"], [1]),
        ("[1] x", ["array"], "[1] x"),
        ("[1", ["array"], "[1"),
        ("{'a': 1}", ["object"], "{'a': 1}"),
        ('{"a": NaN}', ["object"], '{"a": NaN}'),
        ('{"a": "line\nbreak"}', ["object"], {"a": "line\nbreak"}),
        ("[" * 513 + "]" * 513, ["array"], "[" * 513 + "]" * 513),
        ("plain", [], "plain"),
        ("5", [], 5),
        ("true", [], True),
        ("True", [], "True"),
        ("None", [], "None"),
        ("null", [], None),
        ('"quoted"', [], '"quoted"'),
        ("{}", [], {}),
        ("[1, {}", [], "[1, {}"),
        ("9" * 400, ["string"], "9" * 400),
        ("__import__('os')", [], "__import__('os')"),
    ],
)
def test_a_value_has_the_type_that_fits(text: str, kinds: list[str], value: Any) -> None:
    whole = written([text], *kinds)
    assert json.loads(whole) == value
    assert type(json.loads(whole)) is type(value)
    assert written(list(text), *kinds) == whole


@given(
    st.lists(st.text('{}[]",:\\ \n-0123.etrufalsn"a', max_size=5), max_size=8),
    st.sets(st.sampled_from(ALL)),
)
@settings(max_examples=300, deadline=None)
def test_any_text_in_any_cut_gives_the_same_valid_json(pieces: list[str], kinds: set[str]) -> None:
    text = "".join(pieces)
    whole = written([text], *kinds)
    assert written(pieces, *kinds) == whole
    json.loads(whole)


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_a_string_keeps_every_character(text: str) -> None:
    assert json.loads(written(list(text), "string")) == text


def test_much_space_before_a_value_is_a_string() -> None:
    text = " " * 405 + "{}"
    assert json.loads(written([text], "object")) == text
    assert json.loads(written([text[:390], text[390:]], "object")) == text
    assert json.loads(written(list(text), "object")) == text


def test_numbers_keep_their_digits() -> None:
    assert written(["1" * 300 + ".50"], "number") == "1" * 300 + ".50"
    assert written(["1e999999"], "number") == "1e999999"


@pytest.mark.parametrize("kinds", [["integer"], ["number"], []])
def test_a_number_of_a_million_digits_is_a_string(kinds: list[str]) -> None:
    text = "9" * 1_000_000
    assert written([text], *kinds) == f'"{text}"'


@pytest.mark.parametrize("size", [7, 4096, 10_000])
def test_a_long_list_comes_as_it_is_written(size: int) -> None:
    text = json.dumps(["x" * 10] * 1000)
    writer = ValueWriter()
    writer.begin(frozenset(("array",)))
    assert writer.feed(text[:4095]) == ("", "")
    assert writer.feed(text[4095:4097]) == (text[:4097], "")
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert written([*pieces, " \n"], "array") == text


@pytest.mark.parametrize("size", [7, 4096, 10_000])
def test_a_long_list_that_goes_wrong_ends_there(size: int) -> None:
    text = json.dumps(["x" * 10] * 1000)
    wrong = f"{text} x y"
    pieces = [wrong[at : at + size] for at in range(0, len(wrong), size)]
    assert written(pieces, "array") == f"{text} wrong x y"
    assert written([text[:5000]], "array") == f"{text[:5000]} wrong"


def test_a_list_that_goes_wrong_early_is_a_string() -> None:
    text = f"[{'1, ' * 1000}x" + "y" * 5000
    assert json.loads(written([text], "array")) == text
    assert written(list(text), "array") == written([text], "array")


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"type": "str"}, {"string"}),
        ({"type": "Dict"}, {"object"}),
        ({"type": "any"}, set()),
        ({"type": 5}, set()),
        ({"enum": ["a", 1, 1.5, None, True, [], {}]}, set(ALL)),
        ({"const": 0}, {"integer"}),
        ({"anyOf": [{"type": "string"}, {"oneOf": [{"type": "null"}]}]}, {"string", "null"}),
        ({"allOf": [{"type": "array"}], "enum": 5, "anyOf": 5}, {"array"}),
        ({}, set()),
        (True, set()),
        (None, set()),
    ],
)
def test_a_schema_says_which_types_fit(schema: Any, kinds: set[str]) -> None:
    assert schema_kinds(schema) == kinds


def test_a_schema_without_end_is_no_error() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(100_000):
        schema = {"anyOf": [schema]}
    assert schema_kinds(schema) == frozenset()


def test_a_parameter_has_the_type_of_its_tool() -> None:
    tools = (
        ToolSpec("f", {"properties": {"a": {"type": "string"}}}),
        ToolSpec("g", {"properties": {"a": {"type": "integer"}}}),
        ToolSpec("h", {"properties": None}),
    )
    assert parameter_kinds(tools, "g", "a") == {"integer"}
    assert parameter_kinds(tools, "g", "b") == frozenset()
    assert parameter_kinds(tools, "h", "a") == frozenset()
    assert parameter_kinds(tools, "i", "a") == frozenset()


@pytest.mark.parametrize(
    "state",
    [
        None,
        [["string"], "string", "", "", False],
        [["text of"], "string", "", "", False, ["start", ""]],
        [[], "other", "", "", False, ["start", ""]],
        [[], "unknown", 5, "", False, ["start", ""]],
        [[], "unknown", "", "", 0, ["start", ""]],
        [[], "unknown", "", "", False, ["nowhere", ""]],
    ],
)
def test_what_is_no_state_is_refused(state: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        ValueWriter().restore(state)
