"""Batch, one call a chunk, and a session give the same answer, however the tokens are cut."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.scale_out.rig import (
    KEY,
    PARTS,
    WEATHER,
    Joined,
    choice,
    ids_of,
    join_chunks,
    join_whole,
    logprobs_of,
    parsing_model,
    pieces,
    response,
)
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.scale_out.derender_batch import BatchDerender
from splitserve.frontend.scale_out.derender_session import Session
from splitserve.frontend.scale_out.derender_stream import StreamDerender
from splitserve.frontend.scale_out.stream_state import StateSeal
from splitserve.frontend.scale_out.tier import TextTier

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 👍"}}\n</tool_call>'
ANSWERS = (
    f"<think>need weather: {CALL} says</think>\n\nOne moment 한국어.\n{CALL}\n{CALL}",
    "<think>ta ga only in thoughts</think>alpha beta gamma delta",
    "alpha <tool_call> is how\na call begins </think> beta",
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ro',
    "no thoughts at all",
)
PROMPT = ids_of("hello", end=False)
TIER = TextTier(
    model=parsing_model(),
    config=FrontendConfig(),
    fingerprint=PARTS,
    end_ids=frozenset(),
    seal=StateSeal(KEY, PARTS),
    threads=ThreadPoolExecutor(1),
)
BATCH, STREAM = BatchDerender(TIER), StreamDerender(TIER, "chat")


def request(stop: list[str]) -> dict[str, object]:
    return {
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [WEATHER],
        "stop": stop,
        "return_token_ids": True,
    }


def batch(ids: list[int], asked: dict[str, object], finish: str) -> Joined:
    scores = {"content": logprobs_of(ids)}
    body = {
        "generate_response": response(choice(ids, finish_reason=finish, logprobs=scores)),
        "prompt_token_ids": PROMPT,
        "chat_request": asked,
    }
    return join_whole(json.loads(BATCH.chat(json.dumps(body).encode()))["choices"][0])


def call_by_call(stream: list[dict[str, object]], asked: dict[str, object]) -> Joined:
    state, found = None, []
    more = {"prompt_token_ids": PROMPT, "chat_request": asked}
    for chunk in stream:
        body = {"stream": True, "generate_chunk": chunk, "stream_state": state, **more}
        answer = json.loads(STREAM.piece(json.dumps(body).encode()))
        found.append(answer["chunk"])
        state, more = answer["stream_state"], {}
    return join_chunks(found)


def session(stream: list[dict[str, object]], asked: dict[str, object]) -> Joined:
    start = {"prompt_token_ids": PROMPT, "chat_request": asked}
    running = Session(TIER, "chat", json.dumps(start).encode())
    raw = b"".join(running.feed(json.dumps(chunk).encode()) for chunk in stream)
    assert running.finish() == b"data: [DONE]\n\n"
    return join_chunks(json.loads(event[6:]) for event in raw.split(b"\n\n")[:-1])


@pytest.mark.parametrize("text", ANSWERS)
@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), max_size=80),
    stop=st.sampled_from([[], ["ta ga"], ["city", "zzz"]]),
    finish=st.sampled_from(["stop", "length"]),
)
def test_all_three_forms_give_the_same_answer(
    text: str, sizes: list[int], stop: list[str], finish: str
) -> None:
    asked = request(stop)
    ids = ids_of(text, end=finish == "stop")
    stream = pieces(ids, sizes, finish=finish, logprobs=logprobs_of(ids))
    told = batch(ids, asked, finish).told()
    assert call_by_call(stream, asked).told() == told
    assert session(stream, asked).told() == told
