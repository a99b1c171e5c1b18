"""A streamed answer, folded by its reader, is the whole answer."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from frontend.samples import byte_level_inner
from frontend.scripted import chunks
from splitserve.frontend.derender.answer import usage
from splitserve.frontend.derender.events import Delta, Finish, Scored, TextDelta
from splitserve.frontend.derender.head import Head
from splitserve.frontend.derender.logprobs import token_text
from splitserve.frontend.derender.options import AnswerOptions
from splitserve.frontend.derender.pipeline import Derenderer
from splitserve.frontend.forms import CHAT, COMPLETION, Form, Page
from splitserve.frontend.render.job import Job, Prompt
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.protocol.generate import TokenLogprob
from splitserve.protocol.sampling import SamplingParams

TOKENIZER = Tokenizer(byte_level_inner())
HEAD = Head("cmpl-1", "tiny", 1_700_000_000)
IDS = list(TOKENIZER.encode_prompt('say "한국"\r\n\x00 \u2028 end'))
LOGPROBS = [
    TokenLogprob(token_id, -0.5, 2, ((5, -0.25), (token_id, -0.5), (6, float("-inf"))))
    for token_id in IDS
]


def deltas(*, logprobs: bool, stop: tuple[str, ...] = ()) -> list[Delta]:
    derenderer = Derenderer(TOKENIZER, AnswerOptions(logprobs=logprobs, stop=stop))
    return [derenderer.feed(chunk) for chunk in chunks(IDS, logprobs=LOGPROBS)]


def job(*, with_ids: bool) -> Job:
    return Job(
        prompts=(Prompt((7, 8)),),
        sampling=(SamplingParams(seed=0, max_tokens=99),),
        n=1,
        options=AnswerOptions(),
        stream=True,
        include_usage=False,
        return_token_ids=with_ids,
        priority=0,
        cache_salt="",
    )


def written(page: Page, stream: Sequence[Delta]) -> bytes:
    (emit,) = page.emits
    return b"".join(emit(delta) for delta in stream) + page.close(usage(2, len(IDS), [None]), None)


def events(form: Form, stream: Sequence[Delta], *, with_ids: bool = False) -> list[dict[str, Any]]:
    raw = written(form.streamed(TOKENIZER, HEAD, job(with_ids=with_ids)), stream)
    lines = raw.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") and len(line.splitlines()) == 1 for line in lines)
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def whole(form: Form, stream: Sequence[Delta], *, with_ids: bool = False) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(
        written(form.whole(TOKENIZER, HEAD, job(with_ids=with_ids)), stream)
    )
    return body


def fold_completion(stream: list[dict[str, Any]]) -> dict[str, Any]:
    choices = [event["choices"][0] for event in stream]
    logprobs = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    return {
        "text": "".join(choice["text"] for choice in choices),
        "logprobs": {key: [v for lp in logprobs for v in lp[key]] for key in logprobs[0]}
        if logprobs
        else None,
        "finish_reason": choices[-1]["finish_reason"],
        "stop_reason": choices[-1]["stop_reason"],
    }


def fold_chat(stream: list[dict[str, Any]]) -> dict[str, Any]:
    choices = [event["choices"][0] for event in stream]
    logprobs = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    return {
        "text": "".join(choice["delta"].get("content", "") for choice in choices),
        "logprobs": {
            "content": [entry for lp in logprobs for entry in lp["content"]],
            "refusal": None,
        }
        if logprobs
        else None,
        "finish_reason": choices[-1]["finish_reason"],
        "stop_reason": choices[-1]["stop_reason"],
    }


Fold = Callable[[list[dict[str, Any]]], dict[str, Any]]


@pytest.mark.parametrize(("form", "fold"), [(CHAT, fold_chat), (COMPLETION, fold_completion)])
@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("stop", [(), ("zzz",)])
def test_the_folded_stream_is_the_whole_answer(
    form: Form, fold: Fold, logprobs: bool, stop: tuple[str, ...]
) -> None:
    stream = deltas(logprobs=logprobs, stop=stop)
    choice = whole(form, stream)["choices"][0]
    content = choice["message"]["content"] if form is CHAT else choice["text"]
    assert fold(events(form, stream)) == {
        "text": content,
        "logprobs": choice["logprobs"],
        "finish_reason": choice["finish_reason"],
        "stop_reason": choice["stop_reason"],
    }
    assert content == 'say "한국"\r\n\x00 \u2028 end'


def test_a_chat_stream_tells_the_role_once_and_first() -> None:
    roles = [
        event["choices"][0]["delta"].get("role") for event in events(CHAT, deltas(logprobs=False))
    ]
    assert roles[0] == "assistant"
    assert set(roles[1:]) == {None}


def test_nothing_is_written_for_a_token_without_text() -> None:
    (emit,) = COMPLETION.streamed(TOKENIZER, HEAD, job(with_ids=False)).emits
    assert emit(Delta((), (1,))) == b""


def test_chat_logprobs_name_tokens_bytes_and_alternatives() -> None:
    entry = whole(CHAT, deltas(logprobs=True))["choices"][0]["logprobs"]["content"][0]
    first = IDS[0]
    assert entry["token"] == token_text(TOKENIZER, first)
    assert bytes(entry["bytes"]) == TOKENIZER.token_bytes(first)
    assert entry["logprob"] == -0.5
    assert [top["logprob"] for top in entry["top_logprobs"]] == [-0.25, -0.5, -9999.0]


def test_completion_logprobs_hold_the_chosen_token_among_the_alternatives() -> None:
    logprobs = whole(COMPLETION, deltas(logprobs=True))["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == len(logprobs["text_offset"]) == len(IDS)
    for token, alternatives in zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True):
        assert alternatives[token] in (-0.5, -0.25)


def test_part_of_a_character_is_named_by_its_bytes() -> None:
    single = {TOKENIZER.token_bytes(i): i for i in range(TOKENIZER.vocab_size)}
    assert token_text(TOKENIZER, single[b"\xed"]) == r"bytes:\xed"


def test_alternatives_of_the_same_text_keep_the_likelier_value() -> None:
    scored = Scored(IDS[0], -1.0, 1, ((IDS[0], -3.0),), 0)
    delta = Delta((TextDelta("x"),), (IDS[0],), (scored,), Finish("length"))
    top = events(COMPLETION, [delta])[0]["choices"][0]["logprobs"]["top_logprobs"][0]
    assert list(top.values()) == [-1.0]


@pytest.mark.parametrize("form", [CHAT, COMPLETION])
def test_token_ids_are_given_when_asked_for(form: Form) -> None:
    stream = deltas(logprobs=False)
    choices = [event["choices"][0] for event in events(form, stream, with_ids=True)]
    assert choices[0]["prompt_token_ids"] == [7, 8]
    assert not any("prompt_token_ids" in choice for choice in choices[1:])
    assert [i for choice in choices for i in choice.get("token_ids", ())] == IDS
    assert whole(form, stream, with_ids=True)["choices"][0]["token_ids"] == IDS


def test_usage_counts_cached_tokens_only_where_a_worker_told() -> None:
    assert "prompt_tokens_details" not in usage(3, 4, [None])
    assert usage(3, 4, [2, None])["prompt_tokens_details"] == {"cached_tokens": 2}
    assert usage(3, 4, [0])["total_tokens"] == 7
