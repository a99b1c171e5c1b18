"""A body is taken as it is meant, or refused with the name of the field."""

import json
from typing import Any

import pytest

from splitserve.errors import CallerError
from splitserve.protocol.openai.chat import ChatRequest
from splitserve.protocol.openai.completions import CompletionRequest
from splitserve.protocol.openai.errors import ErrorBody, ErrorDetail
from splitserve.protocol.openai.parse import parse

USER = {"role": "user", "content": "hello"}


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
    ({"guided_json": {"type": "object"}}, "guided_json"),
    ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
    ({"response_format": "json"}, "response_format"),
]

CHAT_ONLY = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [USER] * 8193}, "messages"),
    ({"messages": [USER, 5]}, "messages[1]"),
    ({"messages": [USER, {"role": "narrator", "content": "x"}]}, "messages[1].role"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
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
    (
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [{}]}]},
        "messages[0].tool_calls",
    ),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"logprobs": 1}, "logprobs"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"functions": [{}]}, "functions"),
    ({"chat_template": "x"}, "chat_template"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
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
    fields = {"messages": [USER], "tools": [], "functions": None, "metadata": {"a": 1}}
    assert parse(ChatRequest, json.dumps(fields).encode()).messages[0].content == "hello"


def test_the_error_form_is_openais() -> None:
    body = json.loads(ErrorBody(ErrorDetail("why", "invalid_request_error", "n")).encode())
    assert body == {
        "error": {"message": "why", "type": "invalid_request_error", "param": "n", "code": None}
    }
