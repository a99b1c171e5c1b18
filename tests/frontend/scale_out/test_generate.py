"""Token ids in, token ids out, and the whole round: render, generate, derender."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from frontend.conftest import Serve
from frontend.live import Live
from frontend.samples import HERMES, served
from frontend.scripted import Gate, ScriptedGenerator, Step, chunks, saying
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.protocol.generate import GenerateRequest, TokenLogprob

ANSWER = (
    "<think>Two cities.</think>Let me look, 안녕.\n"
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
)
CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "weather in Oslo?"}],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {}}}],
}


@pytest.fixture
def live(serve: Serve, tokenizer: Tokenizer) -> Live:
    ids = tokenizer.encode_prompt(ANSWER + "<|im_end|>")
    model = served(tokenizer, HERMES, max_model_len=4096)
    return serve(ScriptedGenerator(saying(ids, "stop")), of=model)


def post(live: Live, path: str, body: object, status: int = 200) -> Any:
    answer = httpx.post(f"{live.url}{path}", json=body, timeout=30)
    assert answer.status_code == status, answer.text
    return answer.json()


def stream(live: Live, body: object) -> list[dict[str, Any]]:
    answer = httpx.post(f"{live.url}/inference/v1/generate", json=body, timeout=30)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, done, last = answer.text.split("\n\n")
    assert (done, last) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def message(answer: Any) -> Any:
    """What of an answer does not change from one to the next."""
    (choice,) = answer["choices"]
    calls = [call["function"] for call in choice["message"].pop("tool_calls")]
    return choice["message"], calls, choice["finish_reason"], answer["usage"]


def test_render_generate_and_derender_give_what_a_chat_gives(live: Live) -> None:
    direct = post(live, "/v1/chat/completions", CHAT)
    rendered = post(live, "/v1/chat/completions/render", CHAT)
    generated = post(live, "/inference/v1/generate", rendered)
    derendered = post(
        live,
        "/v1/chat/completions/derender",
        {
            "model": "tiny",
            "generate_response": generated,
            "prompt_tokens": len(rendered["token_ids"]),
            "prompt_token_ids": rendered["token_ids"],
            "chat_request": CHAT,
        },
    )
    assert derendered["id"] == generated["request_id"]
    assert message(derendered) == message(direct)
    assert direct["usage"]["prompt_tokens"] == len(rendered["token_ids"])


def test_a_stream_gives_the_same_tokens(live: Live, tokenizer: Tokenizer) -> None:
    rendered = post(live, "/v1/chat/completions/render", CHAT)
    body = {
        **rendered,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    *events, counts = stream(live, body)
    ids = [token for event in events for token in event["choices"][0]["token_ids"]]
    assert ids == list(tokenizer.encode_prompt(ANSWER + "<|im_end|>"))
    assert events[0]["prompt_token_ids"] == rendered["token_ids"]
    assert [event["choices"][0]["finish_reason"] for event in events[-2:]] == [None, "stop"]
    assert counts["choices"] == []
    assert counts["usage"]["completion_tokens"] == len(ids)


def test_logprobs_have_token_ids_and_ranks(serve: Serve, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_prompt("dog")
    scores = [TokenLogprob(token, -1.0, 3, ((9, -0.5), (token, -1.0))) for token in ids]
    live = serve(ScriptedGenerator(lambda _: chunks(ids, logprobs=scores)))
    answer = post(
        live,
        "/inference/v1/generate",
        {"request_id": "r", "token_ids": [5], "sampling_params": {"logprobs": 2}},
    )
    entry = answer["choices"][0]["logprobs"]["content"][0]
    assert (entry["token_id"], entry["rank"]) == (ids[0], 3)
    assert [top["rank"] for top in entry["top_logprobs"]] == [1, 2]


def test_a_stop_string_ends_the_answer_and_derendering_cuts_it(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    live = serve(ScriptedGenerator(saying(tokenizer.encode_prompt("alpha beta gamma"))))
    body = {"model": "tiny", "prompt": "x", "stop": ["ta ga"], "max_tokens": 50}
    (rendered,) = post(live, "/v1/completions/render", body)
    generated = post(live, "/inference/v1/generate", rendered)
    (choice,) = generated["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "ta ga")
    for include, text in ((False, "alpha be"), (True, "alpha beta ga")):
        answer = post(
            live,
            "/v1/completions/derender",
            {
                "generate_responses": [generated],
                "completion_request": {**body, "include_stop_str_in_output": include},
            },
        )
        assert answer["choices"][0]["text"] == text
        assert answer["choices"][0]["finish_reason"] == "stop"


def test_what_an_answer_is_held_to_begins_after_its_reasoning_split_or_not(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    generator = ScriptedGenerator(saying(tokenizer.encode_prompt("{}<|im_end|>"), "stop"))
    live = serve(generator, of=served(tokenizer, HERMES, max_model_len=4096))
    body = {
        "model": "tiny",
        "messages": CHAT["messages"],
        "response_format": {"type": "json_object"},
    }
    post(live, "/v1/chat/completions", body)
    post(live, "/inference/v1/generate", post(live, "/v1/chat/completions/render", body))
    whole, split = (request.sampling.structured_outputs for request in generator.requests)
    assert whole is not None
    assert whole.think_end
    assert split == whole


def test_without_a_limit_the_answer_may_fill_the_context(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    generator = ScriptedGenerator(saying(tokenizer.encode_prompt("x")))
    live = serve(generator)
    post(
        live,
        "/inference/v1/generate",
        {"request_id": "r", "token_ids": [5, 6], "sampling_params": {}},
    )
    assert generator.requests[0].sampling.max_tokens == 512 - 2


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"token_ids": []}, "token_ids"),
        ({"token_ids": [10**6]}, "token_ids"),
        ({"sampling_params": {"temperature": -1}}, "sampling_params.temperature"),
        ({"sampling_params": {"n": 0}}, "sampling_params.n"),
        ({"kv_transfer_params": {"remote_host": "10.0.0.1"}}, "kv_transfer_params"),
        ({"output_mode": "text"}, "output_mode"),
        ({"model": "other"}, "model"),
    ],
)
def test_a_wrong_field_is_named(serve: Serve, change: dict[str, Any], param: str) -> None:
    live = serve(ScriptedGenerator(lambda _: []))
    body = {"request_id": "r", "token_ids": [5], "sampling_params": {}, **change}
    status = 404 if param == "model" else 400
    assert post(live, "/inference/v1/generate", body, status)["error"]["param"] == param


def test_an_answer_can_be_given_up_by_its_id(serve: Serve, tokenizer: Tokenizer) -> None:
    def script(_: GenerateRequest) -> Iterator[Step]:
        yield from chunks([5], finish=None)
        yield Gate()

    generator = ScriptedGenerator(script)
    live = serve(generator)
    body = {"request_id": "r", "token_ids": [5], "sampling_params": {}, "stream": True}
    with httpx.stream("POST", f"{live.url}/inference/v1/generate", json=body, timeout=30) as answer:
        lines = answer.iter_lines()
        first = json.loads(next(lines).removeprefix("data: "))
        aborted = httpx.post(
            f"{live.url}/inference/v1/abort_requests",
            json={"request_ids": [first["request_id"], "unknown"]},
        )
        assert (aborted.status_code, aborted.content) == (200, b"")
        rest = [line for line in lines if line]
    assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "aborted"
    assert generator.ended.get(timeout=10)[1] == "closed"


def test_the_ids_to_give_up_must_be_a_list_of_strings(serve: Serve) -> None:
    live = serve(ScriptedGenerator(lambda _: []))
    error = post(live, "/inference/v1/abort_requests", {"request_ids": "r"}, 400)["error"]
    assert error["param"] == "request_ids"
