"""One call a chunk: all there is to remember travels with the client."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from frontend.scale_out.rig import (
    CHAT,
    COMPLETION,
    KEY,
    PARTS,
    WEATHER,
    Caller,
    app_of,
    call_by_call,
    choice,
    ids_of,
    join_chunks,
    join_whole,
    logprobs_of,
    parsing_model,
    pieces,
    plain_model,
    response,
    text_tier,
)

MESSAGES = [{"role": "user", "content": "hello"}]
REQUEST = {"messages": MESSAGES, "tools": [WEATHER]}
PROMPT = ids_of("hello", end=False)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
THOUGHT = f"<think>need weather 👍</think>\n\nOne moment: 한국어.\n{CALL}\n{CALL}"
IDS = ids_of(THOUGHT)
FIRST = {"chat_request": REQUEST, "prompt_token_ids": PROMPT}
ALPHA = ids_of("alpha beta gamma delta")


async def first_state(caller: Caller, **more: Any) -> dict[str, Any]:
    """After the first chunk of THOUGHT."""
    chunk = pieces(IDS, (4,))[0]
    answer = await caller.good(CHAT, {"stream": True, "generate_chunk": chunk, **FIRST, **more})
    return dict(answer["stream_state"])


def second(state: object) -> dict[str, Any]:
    return {"stream": True, "generate_chunk": pieces(IDS, (4, 3))[1], "stream_state": state}


async def test_only_the_first_call_needs_prompt_and_request(parsing: Caller) -> None:
    """vllm-project/vllm#50550: the whole prompt with every chunk."""
    chunks = await call_by_call(parsing, CHAT, pieces(IDS, (1, 3, 2, 5)), **FIRST)
    told = join_chunks(chunks)
    assert told.reasoning == "need weather 👍"
    assert told.content.strip() == "One moment: 한국어."
    assert told.calls == [("get_weather", '{"city": "Rome"}')] * 2
    assert told.finish == "tool_calls"
    assert told.roles == 1


async def test_a_call_keeps_its_id_over_all_chunks_and_calls_have_different_ones(
    parsing: Caller,
) -> None:
    chunks = await call_by_call(parsing, CHAT, pieces(IDS, ()), **FIRST)
    told = join_chunks(chunks)
    assert len(told.call_ids) == len(set(told.call_ids)) == 2
    said = [
        call["id"]
        for chunk in chunks
        for call in chunk["choices"][0]["delta"].get("tool_calls") or ()
        if "id" in call
    ]
    assert said == told.call_ids


async def test_id_model_and_time_are_the_same_on_all_chunks(plain: Caller) -> None:
    chunks = await call_by_call(plain, CHAT, pieces(ALPHA, ()))
    heads = {(one["id"], one["object"], one["created"], one["model"]) for one in chunks}
    assert len(heads) == 1
    assert heads.pop()[:2] == ("generate-tokens-7", "chat.completion.chunk")


async def test_all_that_one_chunk_brings_stands_in_one_delta(parsing: Caller) -> None:
    (chunk,) = await call_by_call(parsing, CHAT, pieces(IDS, (len(IDS),)), **FIRST)
    (one,) = chunk["choices"]
    assert set(one["delta"]) == {"role", "content", "reasoning", "tool_calls"}
    assert [call["index"] for call in one["delta"]["tool_calls"]] == [0, 1]
    assert {call["function"]["arguments"] for call in one["delta"]["tool_calls"]} == {
        '{"city": "Rome"}'
    }


async def test_completions_stream_too(plain: Caller) -> None:
    request = {"prompt": "one ", "echo": True, "stop": ["ta ga"]}
    chunks = await call_by_call(plain, COMPLETION, pieces(ALPHA, ()), completion_request=request)
    choices = [one for chunk in chunks for one in chunk["choices"]]
    assert "".join(one["text"] for one in choices) == "one alpha be"
    assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("stop", "ta ga")
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}


async def test_what_comes_after_a_stop_string_is_dropped(plain: Caller) -> None:
    request = {"messages": MESSAGES, "stop": "ta ga"}
    chunks = await call_by_call(plain, CHAT, pieces(ALPHA, ()), chat_request=request)
    told = join_chunks(chunks)
    assert (told.content, told.finish, told.stop_reason) == ("alpha be", "stop", "ta ga")
    assert chunks[-1]["choices"] == []


async def test_each_token_of_a_chunk_has_its_own_candidates(plain: Caller) -> None:
    """sgl-project/sglang#39260"""
    scores = logprobs_of(ALPHA)
    chunks = await call_by_call(plain, CHAT, pieces(ALPHA, (3, 2), logprobs=scores))
    whole = await plain.good(
        CHAT, {"generate_response": response(choice(ALPHA, logprobs={"content": scores}))}
    )
    told = join_chunks(chunks).logprobs
    assert told == join_whole(whole["choices"][0]).logprobs
    assert len({json.dumps(entry["top_logprobs"]) for entry in told}) == len(ALPHA)


async def test_offsets_of_completions_go_on_over_chunks(plain: Caller) -> None:
    scores = logprobs_of(ALPHA)
    chunks = await call_by_call(plain, COMPLETION, pieces(ALPHA, (3, 2), logprobs=scores))
    places = [
        place
        for chunk in chunks
        for one in chunk["choices"]
        for place in one["logprobs"]["text_offset"]
    ]
    whole = await plain.good(
        COMPLETION,
        {"generate_responses": [response(choice(ALPHA, logprobs={"content": scores}))]},
    )
    assert places == whole["choices"][0]["logprobs"]["text_offset"]


async def test_usage_is_told_with_the_chunk_that_brings_it(plain: Caller) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": len(ALPHA), "total_tokens": 99}
    stream = [*pieces(ALPHA, ()), {"choices": [], "usage": usage}]
    chunks = await call_by_call(plain, CHAT, stream, prompt_tokens=4)
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": len(ALPHA),
        "total_tokens": 4 + len(ALPHA),
    }


async def test_choices_have_states_of_their_own(parsing: Caller) -> None:
    streams = [pieces(IDS, (2,), index=index) for index in (0, 1)]
    told = [
        join_chunks(await call_by_call(parsing, CHAT, stream, **FIRST), index)
        for index, stream in enumerate(streams)
    ]
    assert told[0].told() == told[1].told()
    assert told[0].call_ids != told[1].call_ids


async def test_a_parsed_stream_needs_request_and_prompt_with_its_first_chunk(
    parsing: Caller,
) -> None:
    """vllm-project/vllm#48617"""
    chunk = pieces(IDS, ())[0]
    for missing in FIRST:
        rest = {name: value for name, value in FIRST.items() if name != missing}
        error = await parsing.refusal(CHAT, {"stream": True, "generate_chunk": chunk, **rest})
        assert (error["param"], error["code"]) == (missing, "missing_required_parameter")


async def test_a_first_chunk_may_bring_the_prompt_itself(parsing: Caller) -> None:
    first, *others = pieces(IDS, (4,))
    stream = [{**first, "prompt_token_ids": PROMPT}, *others]
    told = join_chunks(await call_by_call(parsing, CHAT, stream, chat_request=REQUEST))
    assert told.finish == "tool_calls"


async def test_a_text_model_needs_neither(plain: Caller) -> None:
    told = join_chunks(await call_by_call(plain, CHAT, pieces(ALPHA, ())))
    assert (told.content, told.finish) == ("alpha beta gamma delta", "stop")


async def test_more_than_one_choice_a_chunk_is_refused(plain: Caller) -> None:
    chunk = {"choices": [choice(ALPHA), choice(ALPHA, 1)]}
    error = await plain.refusal(CHAT, {"stream": True, "generate_chunk": chunk})
    assert error["param"] == "generate_chunk.choices"


async def test_an_answer_that_grows_beyond_the_context_is_refused() -> None:
    with text_tier(parsing_model(max_model_len=len(PROMPT) + 6)) as tier:
        caller = Caller(app_of(tier))
        state = await first_state(caller)
        error = await caller.refusal(CHAT, second(state))
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "generate_chunk.choices[0].token_ids"


def refusal_of_state(error: dict[str, Any]) -> None:
    assert (error["param"], error["code"]) == ("stream_state", "invalid_stream_state")


async def test_any_flipped_bit_of_a_state_is_noticed(parsing: Caller) -> None:
    state = await first_state(parsing)
    await parsing.good(CHAT, second(state))
    for name in ("payload", "mac"):
        text = state[name]
        for place in range(0, len(text), 7):
            flipped = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
            refusal_of_state(await parsing.refusal(CHAT, second({**state, name: flipped})))


CHANGED: dict[str, Any] = {
    "truncated": lambda state: {**state, "payload": state["payload"][:-8]},
    "empty": lambda _: {},
    "ten times longer": lambda state: {**state, "payload": state["payload"] * 10},
    "huge": lambda state: {**state, "payload": "A" * 3_000_000},
    "another version": lambda state: {**state, "v": 2},
    "no base64": lambda state: {**state, "payload": "é" + state["payload"]},
    "a null": lambda state: {**state, "mac": None},
    "vLLM's": lambda _: {"prev_tokens": [], "prefix_offset": 0, "read_offset": 0},
    "a string": lambda _: "state",
    "a deep list": lambda _: json.loads("[" * 300 + "]" * 300),
}


@pytest.mark.parametrize("change", CHANGED)
async def test_what_is_no_state_of_ours_is_a_400(parsing: Caller, change: str) -> None:
    state = await first_state(parsing)
    refusal_of_state(await parsing.refusal(CHAT, second(CHANGED[change](state))))


async def test_another_requests_state_is_refused(parsing: Caller) -> None:
    state = await first_state(parsing)
    chunk = {**pieces(IDS, (4, 3))[1], "request_id": "another"}
    body = {"stream": True, "generate_chunk": chunk, "stream_state": state}
    refusal_of_state(await parsing.refusal(CHAT, body))


async def test_another_choices_state_is_refused(parsing: Caller) -> None:
    state = await first_state(parsing)
    chunk = pieces(IDS, (4, 3), index=1)[1]
    body = {"stream": True, "generate_chunk": chunk, "stream_state": state}
    refusal_of_state(await parsing.refusal(CHAT, body))


async def test_the_other_endpoints_state_is_refused(parsing: Caller) -> None:
    state = await first_state(parsing)
    refusal_of_state(await parsing.refusal(COMPLETION, second(state)))


@pytest.mark.parametrize(
    ("key", "parts"), [(b"x" * 32, PARTS), (KEY, {**PARTS, "tokenizer": "another"})]
)
async def test_a_state_of_other_settings_is_refused(key: bytes, parts: dict[str, str]) -> None:
    with (
        text_tier(parsing_model()) as ours,
        text_tier(parsing_model(), key=key, parts=parts) as other,
    ):
        state = await first_state(Caller(app_of(other)))
        refusal_of_state(await Caller(app_of(ours)).refusal(CHAT, second(state)))


async def test_replicas_with_one_key_go_on_from_each_others_states() -> None:
    with text_tier(parsing_model()) as one, text_tier(parsing_model()) as two:
        state = await first_state(Caller(app_of(one)))
        await Caller(app_of(two)).good(CHAT, second(state))


async def test_later_calls_may_repeat_what_only_the_first_needs(parsing: Caller) -> None:
    """As clients made for vLLM's service do; it is not even read."""
    state = await first_state(parsing)
    repeated = {**second(state), "chat_request": 5, "prompt_token_ids": "x"}
    assert await parsing.good(CHAT, repeated) == await parsing.good(CHAT, second(state))


async def test_tools_too_long_to_carry_are_refused_at_once() -> None:
    described = {"type": "object", "description": "x" * 1_100_000}
    tool = {"type": "function", "function": {"name": "f", "parameters": described}}
    with text_tier(parsing_model()) as tier:
        chunk = pieces(IDS, ())[0]
        body = {
            "stream": True,
            "generate_chunk": chunk,
            "prompt_token_ids": PROMPT,
            "chat_request": {"messages": MESSAGES, "tools": [tool]},
        }
        error = await Caller(app_of(tier)).refusal(CHAT, body)
    assert error["code"] == "request_too_large"


def carried_bytes(states: Sequence[dict[str, Any]]) -> list[int]:
    return [len(json.dumps(state)) for state in states]


async def test_a_state_does_not_grow_with_the_answer() -> None:
    """vllm-project/vllm#47161: what grows with each chunk costs its square in the end."""
    words = ids_of("<think>" + "need weather 한국어 " * 200 + "</think>" + "alpha beta " * 200)
    with text_tier(parsing_model()) as tier:
        caller, state, more, states = Caller(app_of(tier)), None, FIRST, []
        for chunk in pieces(words, [16] * len(words)):
            body = {"stream": True, "generate_chunk": chunk, "stream_state": state, **more}
            state, more = (await caller.good(CHAT, body))["stream_state"], {}
            states.append(state)
    sizes = carried_bytes(states)
    assert len(sizes) > 50
    assert max(sizes[len(sizes) // 2 : -1]) <= max(sizes[: len(sizes) // 2]) + 64


async def test_a_state_of_a_plain_answer_is_small() -> None:
    with text_tier(plain_model()) as tier:
        body = {"stream": True, "generate_chunk": pieces(ALPHA, ())[0]}
        answer = await Caller(app_of(tier)).good(CHAT, body)
    assert set(answer["stream_state"]) == {"v", "payload", "mac"}
    assert len(json.dumps(answer["stream_state"])) < 1024
