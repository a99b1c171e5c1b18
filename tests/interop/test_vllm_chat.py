"""Conversations over vLLM: our text tier in front of it, prefix caches behind."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from vllm_fleet import Fleet, VllmCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NEW = 16
LONG = "Here is what I know of the city, in no order at all. " * 16
"""More than a block of tokens, so that prefix caches have something to keep."""

Messages = list[dict[str, str]]


@pytest.fixture(scope="module")
def split(pulling: Fleet) -> Iterator[VllmCluster]:
    with pulling.gateway("p0", "d0") as cluster:
        yield cluster


def chat(url: str, model: str, messages: Messages, **more: Any) -> dict[str, Any]:
    asked = {"model": model, "messages": messages, "max_tokens": NEW, "temperature": 0, **more}
    answer = httpx.post(f"{url}/v1/chat/completions", json=asked, timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def said(answer: dict[str, Any]) -> tuple[str, str, int]:
    choice = answer["choices"][0]
    return (
        choice["message"]["content"],
        choice["finish_reason"],
        answer["usage"]["prompt_tokens"],
    )


def check_same(pulling: Fleet, split: VllmCluster, messages: Messages) -> str:
    ours = said(chat(split.url, split.served, messages))
    assert ours == said(chat(pulling["p0"].url, "smollm2", messages))
    return ours[0]


def test_a_chat_is_the_one_vllm_itself_would_have(pulling: Fleet, split: VllmCluster) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    assert "Paris" in check_same(pulling, split, question)


def test_a_streamed_chat_says_the_same(split: VllmCluster) -> None:
    question = [{"role": "user", "content": "Name three colours of the rainbow."}]
    asked = {"model": split.served, "messages": question, "max_tokens": NEW, "temperature": 0}
    asked["stream"] = True
    pieces = []
    with httpx.stream("POST", f"{split.url}/v1/chat/completions", json=asked, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                choice = json.loads(line[6:])["choices"][0]
                pieces.append(choice["delta"].get("content") or "")
    whole = said(chat(split.url, split.served, question))
    assert "".join(pieces) == whole[0]
    assert len([piece for piece in pieces if piece]) > 1


def test_a_second_turn_whose_history_was_edited(pulling: Fleet, split: VllmCluster) -> None:
    """Caches hold the first turn as it was: nothing of it may show where it was changed."""
    talk = [{"role": "user", "content": LONG + "What is the capital of France?"}]
    first = check_same(pulling, split, talk)
    question = {"role": "user", "content": "Say that again, in one word."}
    kept = [*talk, {"role": "assistant", "content": first}, question]
    edited = [*talk, {"role": "assistant", "content": "It is Rome, of course."}, question]
    shorter = [{"role": "user", "content": LONG[:300]}, *edited[1:]]
    answers = [check_same(pulling, split, messages) for messages in (kept, edited, shorter, kept)]
    assert answers[0] == answers[3]
