"""Every event stream obeys the same grammar, whatever it carries."""

import json
from itertools import product
from typing import Any

import httpx
import pytest

from frontend.conftest import Serve
from frontend.live import Live
from frontend.scripted import ScriptedGenerator, saying
from splitserve.frontend.tokenizer import Tokenizer

TEXT = "The lazy dog, 한국 👋 ta ga."
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"


@pytest.fixture
def live(serve: Serve, tokenizer: Tokenizer) -> Live:
    return serve(ScriptedGenerator(saying(tokenizer.encode_prompt(TEXT))))


def record(live: Live, path: str, **fields: Any) -> list[str]:
    prompt = {"messages": [{"role": "user", "content": "x"}]} if path == CHAT else {"prompt": "x"}
    body = {"model": "tiny", "max_tokens": 50, "stream": True, **prompt, **fields}
    answer = httpx.post(live.url + path, json=body)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.content.decode().split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") for event in events)
    return [event.removeprefix("data: ") for event in events]


def check(raw: list[str], *, path: str, n: int, include_usage: bool) -> None:
    assert raw.count("[DONE]") == 1
    assert raw.pop() == "[DONE]"
    events = [json.loads(event) for event in raw]
    assert len({(event["id"], event["created"], event["model"]) for event in events}) == 1
    if include_usage:
        last = events.pop()
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] > 0
        assert {event["usage"] for event in events} == {None}
    else:
        assert not any("usage" in event for event in events)
    for index in range(n):
        own = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
        finished = [choice["finish_reason"] for choice in own]
        assert set(finished[:-1]) <= {None}
        assert finished[-1] in ("stop", "length")
        if path == CHAT:
            assert own[0]["delta"]["role"] == "assistant"
            assert not any("role" in choice["delta"] for choice in own[1:])


KINDS = list(
    product(
        (CHAT, COMPLETION),
        (1, 3),
        (False, True),
        ({}, {"stop": "ta ga"}, {"return_token_ids": True}),
    )
)


def test_streams_of_all_kinds(live: Live) -> None:
    for path, n, include_usage, fields in KINDS:
        options = {"stream_options": {"include_usage": True}} if include_usage else {}
        raw = record(live, path, n=n, **options, **fields)
        check(raw, path=path, n=n, include_usage=include_usage)


def test_several_prompts_in_one_stream(live: Live) -> None:
    raw = record(live, COMPLETION, prompt=["a", "b"], n=2)
    check(raw, path=COMPLETION, n=4, include_usage=False)
