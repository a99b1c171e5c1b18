"""vLLM's bytes as chunks of token ids."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.ids import RequestId
from splitserve.protocol.generate import TokenChunk, TokenLogprob
from splitserve.router.workers.vllm.answers import AnswerReader, Event, read, split_first
from splitserve.router.workers.vllm.failure import LegFailed, refused
from splitserve.router.workers.vllm.sse import DONE, DataLines

R = RequestId("r")


def event(**choice: Any) -> Event:
    return read(json.dumps({"choices": [{"index": 0, **choice}]}).encode())


@given(st.lists(st.integers(0, 60)))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    whole = b'data: {"a":1}\n\n: comment\n\ndata: {"b":2}\r\n\ndata: [DONE]\n\n'
    lines, found, start = DataLines(), [], 0
    for cut in [*sorted(min(c, len(whole)) for c in cuts), len(whole)]:
        found += lines.feed(whole[start:cut])
        start = cut
    assert found == [b'{"a":1}', b'{"b":2}', DONE]


def test_chunks_count_their_place_in_the_answer() -> None:
    reader = AnswerReader(R, 3, None)
    assert reader.chunk(event(token_ids=[5, 6])) == TokenChunk(R, 3, (5, 6))
    assert reader.chunk(event(token_ids=[], finish_reason=None)) is None
    assert not reader.finished
    last = reader.chunk(event(token_ids=[7], finish_reason="stop", stop_reason=7))
    assert last == TokenChunk(R, 5, (7,), "stop", 7)
    assert reader.finished
    assert reader.chunk(read(b'{"choices": [], "usage": {"prompt_tokens": 2}}')) is None


def test_a_stop_string_is_no_stop_token() -> None:
    chunk = AnswerReader(R, 0, None).chunk(
        event(token_ids=[7], finish_reason="stop", stop_reason="END")
    )
    assert chunk == TokenChunk(R, 0, (7,), "stop", None)


@pytest.mark.parametrize(
    ("reason", "code"), [("abort", "aborted"), ("error", "engine"), ("new", "engine")]
)
def test_an_answer_that_ends_badly_is_a_failure(reason: str, code: str) -> None:
    with pytest.raises(LegFailed) as caught:
        AnswerReader(R, 0, None).chunk(event(token_ids=[], finish_reason=reason))
    assert caught.value.code == code


def test_an_error_in_the_stream_is_a_failure() -> None:
    with pytest.raises(LegFailed) as caught:
        read(b'{"error": {"message": "Internal server error", "code": 500}}')
    assert (caught.value.code, caught.value.reason) == ("engine", "Internal server error")


def test_what_is_no_event_is_a_failure() -> None:
    with pytest.raises(LegFailed, match="cannot be read"):
        read(b"<html>")


@pytest.mark.parametrize(
    ("status", "body", "code", "reason"),
    [
        (400, b'{"error": {"message": "too long", "param": "prompt"}}', "invalid", "too long"),
        (500, b'{"error": {"message": "broke"}}', "engine", "broke"),
        (404, b'{"object": "error", "message": "no model"}', "engine", "no model"),
        (429, b"busy", "no_blocks", "HTTP 429"),
    ],
    ids=["caller", "engine", "older", "full"],
)
def test_a_refusal_keeps_vllms_words(status: int, body: bytes, code: str, reason: str) -> None:
    failure = refused(status, body)
    assert (failure.code, failure.reason) == (code, reason)


def test_logprobs_of_generate_come_with_ids_and_ranks() -> None:
    content = [
        {
            "token_id": 9,
            "logprob": -3.0,
            "rank": 5,
            "top_logprobs": [
                {"token_id": 9, "logprob": -3.0, "rank": 5},
                {"token_id": 1, "logprob": -0.5, "rank": 1},
                {"token_id": 2, "logprob": -1.5, "rank": 2},
            ],
        }
    ]
    chunk = AnswerReader(R, 0, 2).chunk(event(token_ids=[9], logprobs={"content": content}))
    assert chunk is not None
    assert chunk.logprobs == (TokenLogprob(9, -3.0, 5, ((1, -0.5), (2, -1.5))),)


def test_logprobs_of_completions_are_read_from_token_names() -> None:
    logprobs = {
        "tokens": ["token_id:2", "token_id:9"],
        "token_logprobs": [-1.5, None],
        "top_logprobs": [{"token_id:2": -1.5, "token_id:1": -0.5}, None],
        "text_offset": [0, 1],
    }
    chunk = AnswerReader(R, 0, 2).chunk(event(token_ids=[2, 9], logprobs=logprobs))
    assert chunk is not None
    assert chunk.logprobs == (
        TokenLogprob(2, -1.5, 2, ((1, -0.5), (2, -1.5))),
        TokenLogprob(9, -9999.0, 0, ()),
    )


def test_the_first_token_is_cut_off_with_what_belongs_to_it() -> None:
    logprobs = (TokenLogprob(5, -1.0, 1), TokenLogprob(6, -2.0, 1))
    first, rest = split_first(TokenChunk(R, 0, (5, 6), "length", None, logprobs, 4))
    assert first == TokenChunk(R, 0, (5,), None, None, logprobs[:1], 4)
    assert rest == TokenChunk(R, 1, (6,), "length", None, logprobs[1:])
    alone = TokenChunk(R, 0, (5,), "stop")
    assert split_first(alone) == (alone, None)
