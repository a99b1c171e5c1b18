"""The split path (render, generate, derender) answers as the gateway does in one piece."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import httpx
import pytest

from frontend.conftest import Serve
from frontend.live import Live
from frontend.samples import HERMES, served
from frontend.scripted import ScriptedGenerator, Step, chunks
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.protocol.generate import GenerateRequest, TokenLogprob

ANSWERS = (
    "The lazy dog says 안녕 👋, ta ga.\r\n\u2028 end",
    "<think>hm, 東京</think>\n\nAn answer.",
    '<think>look</think>Wait.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Röm"}}\n'
    "</tool_call>\n<tool_call>\n"
    '{"name": "weather", "arguments": {}}\n</tool_call>',
)
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hello 世界"}]}
COMPLETION = {"model": "tiny", "prompt": ["fox", "the dog"], "max_tokens": 60}
EXTRAS: tuple[dict[str, Any], ...] = (
    {},
    {"n": 2, "seed": 7},
    {"stop": ["ta ga", "wer."]},
    {"stop": ["ta ga"], "include_stop_str_in_output": True},
    {"max_tokens": 9},
    {"skip_special_tokens": False},
    {"return_token_ids": True},
)
CHAT_EXTRAS: tuple[dict[str, Any], ...] = (
    *EXTRAS,
    {"tools": TOOLS},
    {"tools": TOOLS, "parallel_tool_calls": False},
    {"tools": TOOLS, "tool_choice": "none"},
    {"logprobs": True, "top_logprobs": 2},
    {"include_reasoning": False},
)
COMPLETION_EXTRAS = (*EXTRAS, {"logprobs": 2}, {"echo": True})


def says(tokenizer: Tokenizer, answer: str) -> Any:
    ids = tokenizer.encode_prompt(answer + "<|im_end|>")

    def script(request: GenerateRequest) -> Iterator[Step]:
        limit = request.sampling.max_tokens
        shown = ids[:limit]
        scores = None
        if request.sampling.logprobs is not None:
            scores = [TokenLogprob(token, -0.5, 1, ((token, -0.5), (9, -2.0))) for token in shown]
        yield from chunks(
            shown,
            finish="length" if limit < len(ids) else "stop",
            logprobs=scores,
            cached_tokens=0,
            request_id=request.request_id,
        )

    return script


class Caller:
    """One connection to a server."""

    def __init__(self, live: Live, client: httpx.Client) -> None:
        self._live = live
        self._client = client

    def post(self, path: str, body: object) -> Any:
        answer = self._client.post(f"{self._live.url}{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=30) as client:
        yield client


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """Without what is drawn anew for each answer."""
    for choice in answer["choices"]:
        for call in choice.get("message", {}).get("tool_calls") or []:
            assert call.pop("id").startswith("call_")
    answer["choices"] = [told(choice) for choice in answer["choices"]]
    return {name: value for name, value in told(answer).items() if name not in ("id", "created")}


def told(fields: dict[str, Any]) -> dict[str, Any]:
    """Without nulls: vLLM's services name fields that they leave empty."""
    return {name: value for name, value in fields.items() if value is not None}


def derendered_chat(caller: Caller, body: dict[str, Any]) -> Any:
    rendered = caller.post("/v1/chat/completions/render", body)
    return caller.post(
        "/v1/chat/completions/derender",
        {
            "generate_response": caller.post("/inference/v1/generate", rendered),
            "prompt_tokens": len(rendered["token_ids"]),
            "prompt_token_ids": rendered["token_ids"],
            "chat_request": body,
        },
    )


def derendered_completion(caller: Caller, body: dict[str, Any]) -> Any:
    rendered = caller.post("/v1/completions/render", body)
    return caller.post(
        "/v1/completions/derender",
        {
            "generate_responses": [caller.post("/inference/v1/generate", one) for one in rendered],
            "prompt_tokens": [len(one["token_ids"]) for one in rendered],
            "prompt_token_ids": [one["token_ids"] for one in rendered],
            "completion_request": body,
        },
    )


@pytest.mark.parametrize("answer", ANSWERS)
def test_chats(serve: Serve, tokenizer: Tokenizer, client: httpx.Client, answer: str) -> None:
    model = served(tokenizer, HERMES, max_model_len=4096)
    caller = Caller(serve(ScriptedGenerator(says(tokenizer, answer)), of=model), client)
    for extra in CHAT_EXTRAS:
        body = {**CHAT, **extra}
        direct = caller.post("/v1/chat/completions", body)
        assert comparable(derendered_chat(caller, body)) == comparable(direct), extra


@pytest.mark.parametrize("answer", ANSWERS)
def test_completions(serve: Serve, tokenizer: Tokenizer, client: httpx.Client, answer: str) -> None:
    caller = Caller(serve(ScriptedGenerator(says(tokenizer, answer))), client)
    for extra, n in product(COMPLETION_EXTRAS, (1, 2)):
        body = {**COMPLETION, **extra, "n": n}
        direct = caller.post("/v1/completions", body)
        assert comparable(derendered_completion(caller, body)) == comparable(direct), body
