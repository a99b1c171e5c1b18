"""What a request says of its answer's form reaches the engine, after the model's thoughts."""

import json
from typing import Any

import pytest

from frontend.render.templates import CODER, DEEPSEEK, QWEN, renderer_of, tokenizer
from splitserve.errors import CallerError
from splitserve.protocol.sampling import StructuredOutputs

USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now"}},
]
AS_SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
BROKEN = {"type": "object", "properties": {"a": {"type": "something"}}}


def held(source: str, **fields: Any) -> StructuredOutputs | None:
    body = json.dumps({"messages": [USER], **fields}).encode()
    return renderer_of(source).chat(body).sampling[0].structured_outputs


def response(**fields: Any) -> StructuredOutputs | None:
    body = json.dumps({"input": "hi", **fields}).encode()
    return renderer_of(CODER).responses(body).sampling[0].structured_outputs


def some(found: StructuredOutputs | None) -> StructuredOutputs:
    assert found is not None
    return found


def one_id(text: str) -> int:
    (found,) = tokenizer().encode_rendered(text)
    return found


def test_an_answer_is_free_unless_the_client_says_otherwise() -> None:
    assert held(CODER) is None
    assert held(CODER, response_format={"type": "text"}) is None
    assert held(QWEN, tools=TOOLS) is None
    assert response(text={"format": {"type": "text"}}) is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"response_format": {"type": "json_object"}}, StructuredOutputs(json_object=True)),
        ({"response_format": AS_SCHEMA}, StructuredOutputs(json=json.dumps(SCHEMA))),
        ({"structured_outputs": {"regex": "[ab]+"}}, StructuredOutputs(regex="[ab]+")),
        ({"guided_choice": ["a", "b"]}, StructuredOutputs(choice=("a", "b"))),
    ],
)
def test_chats_and_completions_are_held_alike(
    fields: dict[str, Any], expected: StructuredOutputs
) -> None:
    assert held(CODER, **fields) == expected
    job = renderer_of(CODER).completion(json.dumps({"prompt": ["x", "y"], **fields}).encode())
    assert [params.structured_outputs for params in job.sampling] == [expected] * 2


def test_a_response_has_its_format_beside_the_type() -> None:
    found = response(text={"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}})
    assert found == StructuredOutputs(json=json.dumps(SCHEMA))


def test_a_named_tool_is_its_arguments() -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    found = held(CODER, tools=TOOLS, tool_choice=choice)
    assert found == StructuredOutputs(json=json.dumps(SCHEMA))


def test_a_required_call_is_a_list_of_calls_of_these_tools() -> None:
    text = some(held(CODER, tools=TOOLS, tool_choice="required", response_format=AS_SCHEMA)).json
    assert text is not None
    schema = json.loads(text)
    names = [one["properties"]["name"]["const"] for one in schema["items"]["anyOf"]]
    assert (schema["type"], names, "maxItems" in schema) == ("array", ["weather", "now"], False)
    alone = some(held(CODER, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)).json
    assert alone is not None
    assert json.loads(alone)["maxItems"] == 1


@pytest.mark.parametrize("fields", [{"response_format": {"type": "json_object"}}, {"tools": TOOLS}])
def test_thoughts_are_free(fields: dict[str, Any]) -> None:
    if "tools" in fields:
        fields = {**fields, "tool_choice": "required"}
    may_think = some(held(QWEN, **fields))
    assert may_think.think_begin == (one_id("<think>"),)
    assert (may_think.think_end, may_think.think_open) == ((one_id("</think>"),), False)
    must_not = some(held(QWEN, chat_template_kwargs={"enable_thinking": False}, **fields))
    assert (must_not.think_begin, must_not.think_end, must_not.think_open) == ((), (), False)


def test_thoughts_that_the_prompt_has_opened_need_no_begin() -> None:
    source = DEEPSEEK + "{{ '' if true else '</think>' }}"
    found = some(held(source, response_format={"type": "json_object"}))
    assert (found.think_begin, found.think_open) == ((), True)
    assert found.think_end == (one_id("</think>"),)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "yaml"}}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": BROKEN}}},
            "response_format",
        ),
        ({"guided_regex": "(["}, "guided_regex"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    ],
)
def test_a_form_that_cannot_be_held_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(CallerError) as caught:
        held(CODER, **fields)
    assert caught.value.param == param


def test_a_response_names_its_own_field() -> None:
    with pytest.raises(CallerError) as caught:
        response(text={"format": {"type": "json_schema", "name": "x", "schema": BROKEN}})
    assert caught.value.param == "text.format"
    assert "'text.format'" in caught.value.message
