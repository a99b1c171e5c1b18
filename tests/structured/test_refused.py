"""What cannot be served is refused, as the caller's error and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.errors import CallerError
from splitserve.protocol.sampling import StructuredOutputs
from splitserve.structured.grammars import check

Refused = tuple[str, dict[str, Any], str]


def properties(count: int, value: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{number}": value for number in range(count)}}


SCHEMAS: dict[str, tuple[Any, str]] = {
    "pattern": ({"type": "string", "pattern": "(["}, "unclosed"),
    "unknown type": ({"type": "something"}, "something"),
    "type of a wrong type": ({"type": 5}, "type"),
    "unsupported keyword": ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    "unknown format": ({"type": "string", "format": "foo"}, "foo"),
    "reference to itself": ({"$ref": "#"}, "leads back to itself"),
    "references in a circle": (
        {
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
            "$ref": "#/$defs/a",
        },
        "leads back to itself",
    ),
    "endless object": (
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        "leads back to itself",
    ),
    "endless array": (
        {"type": "array", "items": {"anyOf": [{"$ref": "#"}]}, "minItems": 1},
        "leads back to itself",
    ),
    "reference to nothing": ({"$ref": "#/$defs/x"}, "does not exist"),
    "reference to a host": ({"$ref": "https://127.0.0.1:1/x.json"}, "retriev"),
    "reference to a file": ({"$ref": "file:///etc/passwd"}, "retriev"),
    "no schema": ([1, 2], "must be a JSON schema"),
    "false": (False, "must be a JSON schema"),
    "empty enum": ({"enum": []}, "nsatisfiable"),
    "contradiction": ({"type": "integer", "minimum": 5, "maximum": 2}, "nsatisfiable"),
    "repeats": ({"type": "string", "pattern": "^(a+){1000000}$"}, "at most 10000"),
    "multipleOf": ({"type": "integer", "multipleOf": 1000003}, "multipleOf"),
    "joined multipleOf": (
        {"allOf": [{"type": "integer", "multipleOf": 997}, {"multipleOf": 991}]},
        "multipleOf",
    ),
    "properties": (properties(5000, {"type": "string"}), "too complex"),
    "alternatives": ({"anyOf": [properties(1, {}) for _ in range(2000)]}, "too complex"),
    "patterns": (properties(2000, {"type": "string", "pattern": "a{2,9}b"}), "too complex"),
    "pattern properties": (
        {"type": "object", "patternProperties": {f"^p{i}[a-z]*$": {} for i in range(300)}},
        "too complex",
    ),
    "all of any of": (
        {"allOf": [{"anyOf": [properties(j, {}) for j in range(1, 5)]} for _ in range(9)]},
        "too large",
    ),
    "long": ({"const": "a" * 300_000}, "bytes"),
    "lone surrogate": ({"const": "\ud800"}, ""),
}

TEXTS: dict[str, tuple[str, str]] = {
    "not JSON": ('{"a":', "not valid JSON"),
    "deep": ("[" * 10_000, "nested deeper"),
    "deep schema": ('{"items":' * 10_000 + "{}" + "}" * 10_000, "nested deeper"),
    "infinite": ('{"const":1e400}', "out of range"),
    "not a number": ('{"const":NaN}', "no JSON number"),
    "digits": ('{"const":' + "1" * 5000 + "}", "digits"),
    "many lists": ("[" + "[]," * 80_000 + "[]]", "must be a JSON schema"),
}

OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "regex": ({"regex": "(["}, "unclosed"),
    "repeated regex": ({"regex": "(a+){1000000}"}, "at most 10000"),
    "look-ahead": ({"regex": "(?=a)b"}, "look-around"),
    "back-reference": ({"regex": r"(a)\1"}, "backreferences"),
    "word border": ({"regex": r"\bfoo\b"}, "not supported"),
    "impossible regex": ({"regex": r"[^\s\S]"}, "no answer"),
    "deep regex": ({"regex": "(" * 5000 + "a" + ")" * 5000}, "nested deeper"),
    "long regex": ({"regex": "a" * 200_000}, "bytes"),
    "costly regex": ({"regex": r"\PL" * 3000}, "too complex"),
    "surrogate": ({"regex": "\ud800"}, "surrogate"),
    "no choice": ({"choice": ()}, "at least one"),
    "many choices": ({"choice": tuple(map(str, range(9999)))}, "at most"),
    "long choice": ({"choice": ("a" * 200_000,)}, "bytes"),
    "empty grammar": ({"grammar": ""}, "start"),
    "lark": ({"grammar": "start: ("}, "xpected"),
    "lark name": ({"grammar": "start: foo"}, "foo"),
    "lark loop": ({"grammar": "start: start"}, "no answer"),
    "lark schema": ({"grammar": 'start: %json {"multipleOf":1000003}'}, "%json"),
    "lark options": ({"grammar": '%llguidance {"no_forcing":false}\nstart: "a"'}, "%llguidance"),
    "deep lark": ({"grammar": "start: " + "(" * 3000 + '"a"' + ")" * 3000}, "nested deeper"),
    "lark doubling": (
        {
            "grammar": "start: A0\nA40: /x/\n"
            + "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(40))
        },
        "too big",
    ),
    "gbnf": ({"grammar": 'root ::= "a'}, "line 1"),
    "gbnf set": ({"grammar": 'x ::= "b"\nroot ::= [a'}, "line 2"),
    "gbnf root": ({"grammar": 'x ::= "a"'}, "root"),
    "gbnf name": ({"grammar": "root ::= foo"}, "foo"),
    "gbnf twice": ({"grammar": 'root ::= "a"\nroot ::= "b"'}, "twice"),
    "gbnf escape": ({"grammar": 'root ::= "\\q"'}, "escape"),
    "gbnf before rules": ({"grammar": '"a"\nroot ::= "b"'}, "begin with a rule"),
    "long gbnf": ({"grammar": f'root ::= "{"a" * 30_000}"'}, "too complex"),
    "tag": ({"structural_tag": "[]"}, "no structural tag"),
    "tag without structures": ({"structural_tag": '{"structures":[],"triggers":["a"]}'}, "1 to"),
    "tag without trigger": (
        {"structural_tag": '{"structures":[{"begin":"<a","end":""}],"triggers":["x"]}'},
        "no trigger",
    ),
    "empty trigger": (
        {"structural_tag": '{"structures":[{"begin":"<a","end":""}],"triggers":[""]}'},
        "none of them empty",
    ),
    "tag schema": (
        {
            "structural_tag": '{"structures":[{"begin":"<a","end":"","schema":{"type":"x"}}],'
            '"triggers":["<a"]}'
        },
        "Invalid type",
    ),
    "newer tag": ({"structural_tag": '{"format":{"type":"any_text"}}'}, "format"),
    "nothing": ({}, "exactly one"),
    "two kinds": ({"regex": "a", "json_object": True}, "exactly one"),
}

CASES: list[Refused] = [
    *((name, {"json": json.dumps(value)}, why) for name, (value, why) in SCHEMAS.items()),
    *((name, {"json": text}, why) for name, (text, why) in TEXTS.items()),
    *((name, fields, why) for name, (fields, why) in OTHERS.items()),
]


@pytest.mark.parametrize(
    ("fields", "why"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_constraint_that_cannot_be_served_is_refused_by_name(
    fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(CallerError) as caught:
        check(StructuredOutputs(**fields), "response_format")
    error = caught.value
    assert (error.param, error.status) == ("response_format", 400)
    assert error.message.startswith("'response_format': ")
    assert why in error.message
    assert "\n" not in error.message
    assert len(error.message) < 400


HUGE_BUT_CHEAP = [
    {"regex": "(a{1000}){1000}"},
    {"regex": "((a{2,100}b){2,100}c){2,100}"},
    {"regex": "(a+){10000}"},
    {"json": '{"type":"string","minLength":1000000,"maxLength":1000000}'},
    {"json": '{"type":"array","items":{"type":"integer"},"maxItems":100000000}'},
    {"json": json.dumps({"const": "a" * 100_000})},
    {"json": json.dumps({"enum": [f"abcdefgh{number}" for number in range(2000)]})},
    {"grammar": 'root ::= ("a"{0,10000} "b"?){0,10000}'},
]


@pytest.mark.parametrize("fields", HUGE_BUT_CHEAP)
def test_a_large_answer_space_is_no_reason_to_refuse(fields: dict[str, Any]) -> None:
    """With the library's own way to force tokens the first of these would take minutes."""
    check(StructuredOutputs(**fields), "response_format")


KEYWORDS = st.sampled_from(
    [
        *("type", "properties", "items", "anyOf", "allOf", "oneOf", "$ref", "enum", "const"),
        *("required", "pattern", "minItems", "minimum", "multipleOf", "format", "prefixItems"),
        *("patternProperties", "$defs", "x"),
    ]
)
VALUES = st.recursive(
    st.sampled_from(["string", "object", "array", "#", "#/$defs/x", "date", "(", 0, 1, 2.5, True])
    | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
    max_leaves=12,
)


def refused(structured: StructuredOutputs) -> str:
    """The message, or nothing when it was taken. Any other exception goes through."""
    try:
        check(structured, "response_format")
    except CallerError as error:
        return error.message
    return ""


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYWORDS, VALUES, max_size=5))
def test_whatever_schema_comes_it_is_taken_or_refused(schema: dict[str, Any]) -> None:
    message = refused(StructuredOutputs(json=json.dumps(schema)))
    assert message == "" or message.startswith("'response_format': ")


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["regex", "grammar", "json", "structural_tag"]),
    st.text(st.sampled_from("ab \n\\\"'()[]{}|*+?.:=/<>%^$,-01r"), max_size=30),
)
def test_whatever_text_comes_it_is_taken_or_refused(kind: str, text: str) -> None:
    for body in (text, f"root ::= {text}", f"start: {text}"):
        message = refused(StructuredOutputs(**{kind: body}))
        assert message == "" or message.startswith("'response_format': ")
