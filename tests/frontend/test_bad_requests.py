"""Bad requests get a 4xx in OpenAI's form, and the server goes on serving."""

import json
import socket
from typing import Any

import httpx
import pytest

from frontend.conftest import Serve
from frontend.live import Live
from frontend.samples import CONTEXT, MISTRAL, served
from frontend.scripted import ScriptedGenerator, saying
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.tokenizer import Tokenizer

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "hello"}
IMAGE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}
CALL_ARGUMENTS = "messages[0].tool_calls[0].function.arguments"
TOOL_NAME = "tools[0].function.name"


@pytest.fixture
def live(serve: Serve, tokenizer: Tokenizer) -> Live:
    return serve(ScriptedGenerator(saying(tokenizer.encode_prompt("fine"))))


def error_of(answer: httpx.Response) -> dict[str, Any]:
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert "Traceback" not in answer.text
    error: dict[str, Any] = body["error"]
    return error


def still_serves(live: Live) -> None:
    answer = httpx.post(live.url + COMPLETION, json={"prompt": "x"})
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["text"] == "fine"


BAD = [
    (CHAT, {}, "messages"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": [{"role": "narrator", "content": "x"}]}, "messages[0].role"),
    (CHAT, {"messages": [USER], "n": 129}, "n"),
    (CHAT, {"messages": [USER], "top_logprobs": 2}, "top_logprobs"),
    (CHAT, {"messages": [USER], "stream_options": {"include_usage": True}}, "stream_options"),
    (CHAT, {"messages": [USER], "tools": [{"type": "function"}]}, "tools[0].function"),
    (CHAT, {"messages": [USER], "tools": [{"type": "function", "function": {}}]}, TOOL_NAME),
    (
        CHAT,
        {"messages": [USER], "tools": [{"type": "function", "function": {"name": "f"}}]},
        "tools",
    ),
    (CHAT, {"messages": [USER], "tool_choice": "required"}, "tool_choice"),
    (CHAT, {"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
    (CHAT, {"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content"),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, CALL_ARGUMENTS),
    (CHAT, {"messages": [USER], "chat_template": "x"}, "chat_template"),
    (CHAT, {"messages": [USER], "modalities": ["audio"]}, "modalities"),
    (CHAT, {"messages": [USER], "chat_template_kwargs": {"tokenize": 1}}, "chat_template_kwargs"),
    (CHAT, {"messages": [{**USER, "content": "fox " * 4 * CONTEXT}]}, "messages"),
    (CHAT, {"messages": [USER], "logit_bias": {"999999": 1}}, "logit_bias"),
    (COMPLETION, {}, "prompt"),
    (COMPLETION, {"prompt": ""}, "prompt"),
    (COMPLETION, {"prompt": [1] * CONTEXT}, "prompt"),
    (COMPLETION, {"prompt": [999_999]}, "prompt"),
    (COMPLETION, {"prompt": ["a", "b"], "n": 100}, "n"),
    (COMPLETION, {"prompt": "x", "max_tokens": -1}, "max_tokens"),
    (COMPLETION, {"prompt": "x", "max_tokens": 4, "min_tokens": 5}, "min_tokens"),
    (COMPLETION, {"prompt": "x", "temperature": 1e9}, "temperature"),
    (COMPLETION, {"prompt": "x", "best_of": 3}, "best_of"),
    (COMPLETION, {"prompt": "x", "suffix": "y"}, "suffix"),
    (COMPLETION, {"prompt": "x", "echo": True, "logprobs": 1}, "echo"),
    (COMPLETION, {"prompt": "x", "stop": ""}, "stop"),
    (COMPLETION, {"prompt": "x", "stop_token_ids": [999_999]}, "stop_token_ids"),
    (COMPLETION, {"prompt": "x", "use_beam_search": True}, "use_beam_search"),
]


def test_each_wrong_field_is_named(live: Live) -> None:
    for path, fields, param in BAD:
        answer = httpx.post(live.url + path, json=fields)
        error = error_of(answer)
        assert (answer.status_code, error["param"]) == (400, param), fields
        assert error["type"] == "invalid_request_error"
    still_serves(live)


def test_what_is_not_supported_is_said_to_be_so(live: Live) -> None:
    fields = {"messages": [USER], "functions": [{"name": "f"}]}
    error = error_of(httpx.post(live.url + CHAT, json=fields))
    assert "not supported yet" in error["message"]
    assert error["code"] == "unsupported_parameter"


def test_a_prompt_too_long_has_a_code_of_its_own(live: Live) -> None:
    for path, fields in (
        (COMPLETION, {"prompt": [1] * CONTEXT}),
        (CHAT, {"messages": [{**USER, "content": "x" * 1_000_000}]}),
    ):
        error = error_of(httpx.post(live.url + path, json=fields))
        assert error["code"] == "context_length_exceeded"
    still_serves(live)


def test_text_of_any_kind_is_served(live: Live) -> None:
    for content in ("\x00", "\u2028", "a\r\nb", "<|im_end|>", "\U0010ffff", "x" * 200):
        message = {"role": "user", "content": content}
        assert httpx.post(live.url + CHAT, json={"messages": [message]}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"prompt": "\xff\xfe"}', b'{"prompt": "\\ud800"}', b"[" * 200_000],
    ids=["empty", "malformed", "no object", "bad utf-8", "lone surrogate", "deep"],
)
def test_bodies_that_are_no_request(live: Live, body: bytes) -> None:
    for path in (CHAT, COMPLETION):
        answer = httpx.post(live.url + path, content=body)
        assert answer.status_code == 400
        assert error_of(answer)["type"] == "invalid_request_error"
    still_serves(live)


def test_any_content_type_will_do(live: Live) -> None:
    body = json.dumps({"prompt": "x"}).encode()
    headers = {"content-type": "text/plain"}
    assert httpx.post(live.url + COMPLETION, content=body, headers=headers).status_code == 200


def test_an_unknown_model_is_404(live: Live) -> None:
    answer = httpx.post(live.url + CHAT, json={"model": "gpt-5", "messages": [USER]})
    assert answer.status_code == 404
    error = error_of(answer)
    assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_a_body_of_ten_megabytes_is_refused(live: Live) -> None:
    answer = httpx.post(live.url + COMPLETION, json={"prompt": "x" * 10_000_000})
    assert answer.status_code == 413
    assert error_of(answer)["code"] == "request_too_large"
    still_serves(live)


def test_a_large_body_is_refused_before_it_has_come(live: Live) -> None:
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n{"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_body_without_a_declared_length_is_cut_off_at_the_limit(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    generator = ScriptedGenerator(saying(tokenizer.encode_prompt("fine")))
    live = serve(generator, config=FrontendConfig(max_body_bytes=1000))
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        connection.sendall(b"3e9\r\n" + b"x" * 1001 + b"\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    still_serves(live)


def test_a_template_that_refuses_the_messages_says_why(serve: Serve, tokenizer: Tokenizer) -> None:
    generator = ScriptedGenerator(saying(tokenizer.encode_prompt("fine")))
    live = serve(generator, of=served(tokenizer, MISTRAL))
    answer = httpx.post(live.url + CHAT, json={"messages": [USER, USER]})
    assert answer.status_code == 400
    error = error_of(answer)
    assert error["param"] == "messages"
    assert "roles must alternate" in error["message"]


def test_unknown_paths_and_wrong_methods(live: Live) -> None:
    unknown = httpx.get(live.url + "/v1/nothing")
    assert unknown.status_code == 404
    assert error_of(unknown)["code"] == "not_found"
    wrong = httpx.get(live.url + CHAT)
    assert wrong.status_code == 405
    assert "POST" in wrong.headers["allow"]
    assert error_of(wrong)["code"] == "method_not_allowed"
    assert httpx.post(live.url + "/v1/models").status_code == 405
    assert httpx.post(live.url + "/v1/completions/").status_code == 404
