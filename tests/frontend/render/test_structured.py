"""Every way a client has to say what the answer must conform to, and every way to get it wrong."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from splitserve.errors import CallerError
from splitserve.frontend.render.structured import (
    NO_THINKING,
    Thinking,
    for_tools,
    resolve_structured,
)
from splitserve.protocol.sampling import StructuredOutputs


@dataclass
class Fields:
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None


@dataclass
class Function:
    name: str
    parameters: dict[str, Any] | None = None


POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
AS_SCHEMA = {"type": "json_schema", "json_schema": {"name": "p", "schema": POINT, "strict": True}}
TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}],
    "triggers": ["<f>"],
}
JSON = StructuredOutputs(json=json.dumps(POINT))
GRAMMAR = 'root ::= "a"'


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, StructuredOutputs(json_object=True)),
        ({"response_format": AS_SCHEMA}, JSON),
        ({"response_format": TAG}, StructuredOutputs(structural_tag=json.dumps(TAG))),
        ({"structured_outputs": {"json": POINT}}, JSON),
        ({"structured_outputs": {"json": json.dumps(POINT)}}, JSON),
        ({"structured_outputs": {"regex": "a+"}}, StructuredOutputs(regex="a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, StructuredOutputs(choice=("a", "b"))),
        ({"structured_outputs": {"grammar": GRAMMAR}}, StructuredOutputs(grammar=GRAMMAR)),
        ({"structured_outputs": {"json_object": True}}, StructuredOutputs(json_object=True)),
        (
            {"structured_outputs": {"structural_tag": json.dumps(TAG)}},
            StructuredOutputs(structural_tag=json.dumps(TAG)),
        ),
        (
            {
                "structured_outputs": {
                    "regex": "a",
                    "json": None,
                    "json_object": False,
                    "disable_any_whitespace": False,
                }
            },
            StructuredOutputs(regex="a"),
        ),
        ({"guided_json": POINT}, JSON),
        ({"guided_json": json.dumps(POINT)}, JSON),
        ({"guided_regex": "a+"}, StructuredOutputs(regex="a+")),
        ({"guided_choice": ["a", "b"]}, StructuredOutputs(choice=("a", "b"))),
        ({"guided_grammar": GRAMMAR}, StructuredOutputs(grammar=GRAMMAR)),
        (
            {"response_format": {"type": "text"}, "guided_regex": "a"},
            StructuredOutputs(regex="a"),
        ),
    ],
)
def test_each_form_says_the_same(
    fields: dict[str, Any], expected: StructuredOutputs | None
) -> None:
    assert resolve_structured(Fields(**fields)) == expected


@pytest.mark.parametrize(
    ("fields", "param", "why"),
    [
        ({"response_format": {}}, "response_format", "type"),
        ({"response_format": {"type": "yaml"}}, "response_format", "type"),
        ({"response_format": {"type": ["text"]}}, "response_format", "type"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format",
            "schema",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {"type": "something"}},
                }
            },
            "response_format",
            "something",
        ),
        ({"response_format": {"type": "structural_tag"}}, "response_format", "structures"),
        ({"structured_outputs": {}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs", "exactly one"),
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            "structured_outputs",
            "exactly one",
        ),
        (
            {"structured_outputs": {"json": POINT, "disable_any_whitespace": True}},
            "structured_outputs",
            "disable_any_whitespace",
        ),
        ({"structured_outputs": {"jsn": POINT}}, "structured_outputs", "jsn"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs", "string"),
        ({"structured_outputs": {"choice": "a"}}, "structured_outputs", "list"),
        ({"structured_outputs": {"choice": [1]}}, "structured_outputs", "string"),
        ({"structured_outputs": {"json_object": 1}}, "structured_outputs", "json_object"),
        ({"structured_outputs": {"json": [1]}}, "structured_outputs", "schema"),
        ({"guided_json": "{"}, "guided_json", "JSON"),
        ({"guided_regex": "(["}, "guided_regex", "unclosed"),
        ({"guided_choice": []}, "guided_choice", "at least one"),
        ({"guided_grammar": "root"}, "guided_grammar", ""),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
            "exclude",
        ),
        ({"response_format": AS_SCHEMA, "guided_regex": "a"}, "guided_regex", "exclude"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "exclude"),
    ],
)
def test_what_is_wrong_is_told_by_its_field(fields: dict[str, Any], param: str, why: str) -> None:
    with pytest.raises(CallerError) as caught:
        resolve_structured(Fields(**fields))
    assert (caught.value.param, caught.value.status) == (param, 400)
    assert f"'{param}'" in caught.value.message
    assert why in caught.value.message


@pytest.mark.parametrize("depth", [150, 100_000])
def test_a_schema_that_is_too_deep_is_refused(depth: int) -> None:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    with pytest.raises(CallerError, match="deep"):
        resolve_structured(Fields(guided_json={"allOf": [schema, schema]}))
    with pytest.raises(CallerError, match="deep"):
        for_tools([Function("f", schema)], name=None, parallel=True, thinking=NO_THINKING)


def test_thoughts_come_before_the_constraint() -> None:
    thinking = Thinking(begin=(5,), end=(6, 7), open=True)
    found = resolve_structured(Fields(guided_regex="a"), thinking)
    assert found == StructuredOutputs(
        regex="a", think_begin=(5,), think_end=(6, 7), think_open=True
    )


TREE = {
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    "$ref": "#/$defs/node",
}
TOOLS = [Function("point", POINT), Function("tree", TREE), Function("stop")]


def calls(parallel: bool) -> dict[str, Any]:
    found = for_tools(TOOLS, name=None, parallel=parallel, thinking=NO_THINKING)
    assert found.json is not None
    value = json.loads(found.json)
    assert isinstance(value, dict)
    return value


def test_required_calls_are_an_array_of_named_parameters() -> None:
    schema = calls(parallel=True)
    assert (schema["type"], schema["minItems"], "maxItems" in schema) == ("array", 1, False)
    names = [each["properties"]["name"]["const"] for each in schema["items"]["anyOf"]]
    assert names == ["point", "tree", "stop"]
    assert calls(parallel=False)["maxItems"] == 1


def test_references_of_a_tool_stay_within_its_own_schema() -> None:
    schema = calls(parallel=True)
    tree = schema["items"]["anyOf"][1]["properties"]["parameters"]
    assert tree == {"$ref": "#/$defs/tool1"}
    moved = schema["$defs"]["tool1"]
    assert moved["$ref"] == "#/$defs/tool1/$defs/node"
    assert moved["$defs"]["node"]["properties"]["next"]["$ref"] == "#/$defs/tool1/$defs/node"
    assert TREE["$ref"] == "#/$defs/node"


def test_a_named_call_is_its_parameters() -> None:
    found = for_tools(TOOLS, name="point", parallel=True, thinking=NO_THINKING)
    assert found == JSON
    nothing = for_tools(TOOLS, name="stop", parallel=True, thinking=NO_THINKING)
    assert nothing.json is not None
    assert json.loads(nothing.json)["additionalProperties"] is False


@pytest.mark.parametrize("name", [None, "bad"])
def test_a_tools_schema_that_cannot_be_served_is_told(name: str | None) -> None:
    bad = Function("bad", {"type": "something"})
    with pytest.raises(CallerError) as caught:
        for_tools([bad, *TOOLS], name=name, parallel=True, thinking=NO_THINKING)
    assert caught.value.param == "tools"
    assert "something" in caught.value.message


def test_as_many_tools_as_a_request_may_have() -> None:
    many = [
        Function(f"tool_{number}", {"type": "object", "properties": {"q": {"type": "string"}}})
        for number in range(128)
    ]
    assert for_tools(many, name=None, parallel=True, thinking=NO_THINKING).json
