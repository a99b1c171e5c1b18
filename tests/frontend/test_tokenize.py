"""Counting tokens goes the way of a real prompt."""

import json
from typing import Any

import pytest

from frontend.render.templates import CONTEXT, LLAMA, QWEN, model_of, renderer_of, tokenizer
from splitserve.errors import CallerError
from splitserve.frontend.tokenize import detokenize, tokenize

TEXTS = ("hello", "한국어 🌧", "a<|im_end|>b", "<s>x", "  spaces   ", "\r\n\u2028\x00")
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def counted(source: str, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(tokenize(model_of(source), json.dumps(fields).encode()))
    return answer


@pytest.mark.parametrize("source", [QWEN, LLAMA], ids=["qwen", "llama"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": [TOOL]},
        {"add_generation_prompt": False},
        {"add_special_tokens": True},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
    ids=["plain", "tools", "no prompt", "special", "kwargs"],
)
def test_a_chat_counts_as_it_is_served(source: str, text: str, fields: dict[str, Any]) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    answer = counted(source, messages=messages, **fields)
    body = json.dumps({"messages": messages, **fields}).encode()
    served = renderer_of(source).chat(body).prompts[0].token_ids
    assert answer == {
        "count": len(served),
        "max_model_len": CONTEXT,
        "tokens": list(served),
        "token_strs": None,
    }


@pytest.mark.parametrize("text", TEXTS)
def test_a_prompt_counts_as_it_is_served_and_comes_back(text: str) -> None:
    answer = counted(QWEN, prompt=text, return_token_strs=True)
    served = renderer_of(QWEN).completion(json.dumps({"prompt": text}).encode())
    assert answer["tokens"] == list(served.prompts[0].token_ids)
    assert answer["token_strs"] == [tokenizer().token(one) for one in answer["tokens"]]
    body = json.dumps({"tokens": answer["tokens"]}).encode()
    assert json.loads(detokenize(model_of(QWEN), body)) == {"prompt": text}


def test_what_is_too_long_to_answer_is_counted() -> None:
    assert counted(QWEN, prompt="fox " * 4 * CONTEXT)["count"] > CONTEXT


def test_no_tokens_are_no_text() -> None:
    assert json.loads(detokenize(model_of(QWEN), b'{"tokens": []}')) == {"prompt": ""}


@pytest.mark.parametrize(
    ("endpoint", "body", "param"),
    [
        (tokenize, {}, "prompt"),
        (tokenize, {"prompt": ""}, "prompt"),
        (tokenize, {"prompt": ["a"]}, "prompt"),
        (tokenize, {"messages": []}, "messages"),
        (tokenize, {"messages": [{"role": "user"}]}, "messages[0].content"),
        (tokenize, {"prompt": "a", "model": "gpt-5"}, "model"),
        (detokenize, {}, "tokens"),
        (detokenize, {"tokens": [-1]}, "tokens[0]"),
        (detokenize, {"tokens": [10**9]}, "tokens"),
        (detokenize, {"tokens": "a"}, "tokens"),
        (detokenize, {"tokens": [1], "model": "gpt-5"}, "model"),
    ],
)
def test_what_is_wrong_is_named(endpoint: Any, body: dict[str, Any], param: str) -> None:
    with pytest.raises(CallerError) as caught:
        endpoint(model_of(QWEN), json.dumps(body).encode())
    assert caught.value.param == param


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": '])
def test_what_is_no_request_is_the_callers_error(body: bytes) -> None:
    for endpoint in (tokenize, detokenize):
        with pytest.raises(CallerError):
            endpoint(model_of(QWEN), body)
