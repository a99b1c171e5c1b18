"""A body is taken as it is meant, or refused with the name of the field."""

import json
from typing import Any

import pytest

from splitserve.errors import CallerError
from splitserve.protocol.openai.chat import ChatRequest
from splitserve.protocol.openai.completions import CompletionRequest
from splitserve.protocol.openai.errors import ErrorBody, ErrorDetail
from splitserve.protocol.openai.parse import parse
from splitserve.protocol.openai.responses import ResponsesRequest

USER = {"role": "user", "content": "hello"}


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **function}}


TOOL = tool()


def refused(
    kind: type[ChatRequest] | type[CompletionRequest], fields: dict[str, Any]
) -> str | None:
    base = {"messages": [USER]} if kind is ChatRequest else {"prompt": "hello"}
    with pytest.raises(CallerError) as caught:
        parse(kind, json.dumps({**base, **fields}).encode())
    assert caught.value.status == 400
    assert "\n" not in caught.value.message
    return caught.value.param


BOTH = [
    ({"model": 5}, "model"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"max_tokens": "16"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": float("nan")}, "temperature"),
    ({"temperature": float("inf")}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": -0.1}, "min_p"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": -(10**30)}, "n"),
    ({"seed": 2**63}, "seed"),
    ({"seed": 1.5}, "seed"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": ["a", 1]}, "stop"),
    ({"stop": {"a": 1}}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": "x" * 1025}, "stop"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
    ({"stop_token_ids": ["a"]}, "stop_token_ids[0]"),
    ({"stop_token_ids": [1] * 129}, "stop_token_ids"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"logit_bias": {"1": "x"}}, "logit_bias"),
    ({"logit_bias": {"1": True}}, "logit_bias"),
    ({"logit_bias": {"1": float("nan")}}, "logit_bias"),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"ignore_eos": "yes"}, "ignore_eos"),
    ({"stream": "true"}, "stream"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"stream_options": []}, "stream_options"),
    ({"user": 5}, "user"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"priority": 2**40}, "priority"),
    ({"allowed_token_ids": [1]}, "allowed_token_ids"),
    ({"bad_words": ["a"]}, "bad_words"),
    ({"prompt_logprobs": 1}, "prompt_logprobs"),
    ({"guided_json": 5}, "guided_json"),
    ({"guided_regex": ["a"]}, "guided_regex"),
    ({"guided_choice": "a"}, "guided_choice"),
    ({"guided_choice": [1]}, "guided_choice[0]"),
    ({"guided_grammar": {}}, "guided_grammar"),
    ({"structured_outputs": "json"}, "structured_outputs"),
    ({"response_format": "json"}, "response_format"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": "5"}, "truncate_prompt_tokens"),
    ({"truncation_side": "right"}, "truncation_side"),
    ({"add_special_tokens": "yes"}, "add_special_tokens"),
    ({"stream_options": {"continuous_usage_stats": 1}}, "stream_options.continuous_usage_stats"),
    ({"return_token_ids": 1}, "return_token_ids"),
]

CHAT_ONLY = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [USER] * 8193}, "messages"),
    ({"messages": [USER, 5]}, "messages[1]"),
    ({"messages": [USER, {"role": "narrator", "content": "x"}]}, "messages[1].role"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "tool"}]}, "messages[0].content"),
    ({"messages": [{"role": "tool", "content": None}]}, "messages[0].content"),
    ({"messages": [{**USER, "tool_call_id": 5}]}, "messages[0].tool_call_id"),
    ({"messages": [{**USER, "reasoning": 5}]}, "messages[0].reasoning"),
    ({"messages": [{**USER, "reasoning_content": {}}]}, "messages[0].reasoning_content"),
    ({"messages": [{**USER, "function_call": {"name": "f"}}]}, "messages[0].function_call"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 1025}]},
        "messages[0].content",
    ),
    ({"messages": [{**USER, "name": 5}]}, "messages[0].name"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"logprobs": 1}, "logprobs"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [TOOL, {"type": "function", "function": {}}]}, "tools[1].function.name"),
    ({"tools": [tool(name="")]}, "tools[0].function.name"),
    ({"tools": [tool(name="a b")]}, "tools[0].function.name"),
    ({"tools": [tool(name="x" * 65)]}, "tools[0].function.name"),
    ({"tools": [tool(name="f\n")]}, "tools[0].function.name"),
    ({"tools": [tool(description=5)]}, "tools[0].function.description"),
    ({"tools": [tool(parameters=[])]}, "tools[0].function.parameters"),
    ({"tools": [tool(strict="yes")]}, "tools[0].function.strict"),
    ({"tools": [TOOL, TOOL]}, "tools"),
    ({"tools": [tool(name=f"f{n}") for n in range(129)]}, "tools"),
    ({"tool_choice": "any"}, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice"),
    ({"tool_choice": 5}, "tool_choice"),
    ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
    ({"include_reasoning": "yes"}, "include_reasoning"),
    ({"reasoning_effort": "enormous"}, "reasoning_effort"),
    ({"documents": ["x"]}, "documents[0]"),
    ({"function_call": "auto"}, "function_call"),
    ({"functions": [{}]}, "functions"),
    ({"chat_template": "x"}, "chat_template"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
]

CALLS = [
    ({}, ".function"),
    ({"function": {}}, ".function.name"),
    ({"function": {"name": "f"}}, ".function.arguments"),
    ({"function": {"name": "", "arguments": "{}"}}, ".function.name"),
    ({"function": {"name": "f", "arguments": {}}}, ".function.arguments"),
    ({"function": {"name": "f", "arguments": "{"}}, ".function.arguments"),
    ({"function": {"name": "f", "arguments": '{"a": NaN}'}}, ".function.arguments"),
    ({"function": {"name": "f", "arguments": '{"a": "\\ud800"}'}}, ".function.arguments"),
    ({"function": {"name": "f", "arguments": "[" * 100_000}}, ".function.arguments"),
    ({"function": {"name": "f", "arguments": "[1]"}}, ".function.arguments"),
    ({"function": {"name": "f", "arguments": "x"}}, ".function.arguments"),
    ({"type": "custom", "function": {"name": "f", "arguments": "{}"}}, ".type"),
    ({"id": 5, "function": {"name": "f", "arguments": "{}"}}, ".id"),
]

COMPLETION_ONLY = [
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [""]}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": {"text": "x"}}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [[1], "a"]}, "prompt"),
    ({"prompt": [1.5]}, "prompt"),
    ({"prompt": [True]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [10**30]}, "prompt"),
    ({"logprobs": True}, "logprobs"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": -1}, "logprobs"),
    ({"echo": "yes"}, "echo"),
    ({"best_of": 0}, "best_of"),
    ({"suffix": "x"}, "suffix"),
]


@pytest.mark.parametrize("kind", [ChatRequest, CompletionRequest])
@pytest.mark.parametrize(("fields", "param"), BOTH, ids=lambda value: str(value)[:60])
def test_both_endpoints_name_the_wrong_field(
    kind: type[ChatRequest] | type[CompletionRequest], fields: dict[str, Any], param: str
) -> None:
    assert refused(kind, fields) == param


@pytest.mark.parametrize(("fields", "param"), CHAT_ONLY, ids=lambda value: str(value)[:60])
def test_a_chat_names_the_wrong_field(fields: dict[str, Any], param: str) -> None:
    assert refused(ChatRequest, fields) == param


@pytest.mark.parametrize(("call", "path"), CALLS, ids=lambda value: str(value)[:60])
def test_a_past_call_names_the_wrong_field(call: dict[str, Any], path: str) -> None:
    good = {"function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [good, call]}
    param = refused(ChatRequest, {"messages": [USER, message]})
    assert param == f"messages[1].tool_calls[1]{path}"


@pytest.mark.parametrize(("fields", "param"), COMPLETION_ONLY, ids=lambda value: str(value)[:60])
def test_a_completion_names_the_wrong_field(fields: dict[str, Any], param: str) -> None:
    assert refused(CompletionRequest, fields) == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"messages": [}',
        b'"\xff"',
        b'{"messages": [{"role": "user", "content": "\xc3"}]}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b"[" * 100_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    ],
    ids=range(8),
)
def test_what_is_no_json_is_refused_as_such(body: bytes) -> None:
    with pytest.raises(CallerError, match="not valid JSON") as caught:
        parse(ChatRequest, body)
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize("body", [b"[]", b"null", b"5", b'"text"'])
def test_json_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(CallerError, match="JSON object"):
        parse(ChatRequest, body)


def test_a_missing_field_is_named() -> None:
    for kind, param in ((ChatRequest, "messages"), (CompletionRequest, "prompt")):
        with pytest.raises(CallerError) as caught:
            parse(kind, b"{}")
        assert (caught.value.param, caught.value.code) == (param, "missing_required_parameter")


@pytest.mark.parametrize("field", ["messages", "stop", "stop_token_ids"])
def test_a_body_full_of_errors_is_refused_with_one(field: str) -> None:
    wrongs = b'[{"role": "x"},' + b"1.5," * 100_000 + b"1]"
    body = b'{"messages": [{"role": "user", "content": "x"}], "%s": %s}'
    with pytest.raises(CallerError) as caught:
        parse(ChatRequest, body % (field.encode(), wrongs))
    assert caught.value.param is not None
    assert caught.value.param.startswith(field)


def test_numbers_of_a_million_digits_are_refused_at_once() -> None:
    with pytest.raises(CallerError, match="out of range"):
        parse(CompletionRequest, b'{"prompt": "x", "seed": ' + b"1" * 1_000_000 + b"}")


def test_unknown_fields_are_ignored_and_empty_ones_not_given() -> None:
    fields = {
        "messages": [USER],
        "tools": [],
        "functions": None,
        "metadata": {"a": 1},
        "store": True,
        "service_tier": "auto",
        "user": "me",
    }
    assert parse(ChatRequest, json.dumps(fields).encode()).messages[0].content == "hello"


@pytest.mark.parametrize(
    ("text", "value"),
    [('{"a": [1, "x"]}', {"a": [1, "x"]}), ("{}", {}), ("", {}), (" ", {})],
)
def test_arguments_of_a_past_call_are_an_object(text: str, value: dict[str, Any]) -> None:
    function = {"name": "any name: 1", "arguments": text}
    message = {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}
    request = parse(ChatRequest, json.dumps({"messages": [message]}).encode())
    calls = request.messages[0].tool_calls
    assert calls is not None
    assert calls[0].function.arguments.value == value


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ("none", ("none", None)),
        ("auto", ("auto", None)),
        ("required", ("required", None)),
        ({"type": "function", "function": {"name": "f"}}, ("named", "f")),
        ({"type": "function", "name": "f"}, ("named", "f")),
    ],
)
def test_tool_choice_has_five_spellings(given: Any, choice: tuple[str, str | None]) -> None:
    body = {"messages": [USER], "tools": [TOOL], "tool_choice": given}
    assert parse(ChatRequest, json.dumps(body).encode()).tool_choice == choice


RESPONSES = [
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"input": ["x"]}, "input[0]"),
    ({"input": [USER, {"type": "item_reference", "id": "x"}]}, "input[1]"),
    ({"input": [{"type": "web_search_call"}]}, "input[0]"),
    ({"input": [{"type": 5}]}, "input[0]"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0].arguments"),
    (
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]},
        "input[0].arguments",
    ),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
    ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
    ({"input": [{"type": "reasoning", "content": [{"type": "x"}]}]}, "input[0].content"),
    ({"tools": [{"type": "web_search"}]}, "tools[0]"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": "f"}] * 2}, "tools"),
    ({"previous_response_id": "resp-1"}, "previous_response_id"),
    ({"conversation": "c"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"reasoning": {"effort": "x"}}, "reasoning.effort"),
    ({"text": {"format": "json"}}, "text.format"),
    ({"truncation": "middle"}, "truncation"),
]


@pytest.mark.parametrize(("fields", "param"), RESPONSES, ids=lambda value: str(value)[:60])
def test_a_response_names_the_wrong_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(CallerError) as caught:
        parse(ResponsesRequest, json.dumps({"input": "hello", **fields}).encode())
    assert caught.value.param == param


def test_the_error_form_is_openais() -> None:
    body = json.loads(ErrorBody(ErrorDetail("why", "invalid_request_error", "n")).encode())
    assert body == {
        "error": {"message": "why", "type": "invalid_request_error", "param": "n", "code": None}
    }
