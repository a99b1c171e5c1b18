"""Whole answers of token ids become OpenAI's whole answers, as vLLM's derender service has it."""

import pytest

from frontend.scale_out.rig import (
    CHAT,
    COMPLETION,
    TOKENIZER,
    WEATHER,
    Caller,
    choice,
    ids_of,
    join_whole,
    logprobs_of,
    response,
)

ALPHA = ids_of("alpha beta gamma delta")
MESSAGES = [{"role": "user", "content": "hello"}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
THOUGHT = f"<think>need weather</think>\n\nOne moment.\n{CALL}"
REQUEST = {"messages": MESSAGES, "tools": [WEATHER]}
PROMPT = ids_of("hello", end=False)
LOGPROBS = logprobs_of(ALPHA)
PROMPT_LOGPROBS = [None, *({"5": {"logprob": -float(place)}} for place in range(1, 5))]


async def test_a_chat_answer_keeps_id_index_and_finish_and_counts_tokens(plain: Caller) -> None:
    """llm-d/llm-d-inference-sim#678"""
    body = {
        "model": "tiny",
        "generate_response": response(choice(ALPHA), choice(ALPHA[:2], 1, finish_reason="length")),
        "prompt_tokens": 9,
    }
    answer = await plain.good(CHAT, body)
    assert answer["id"] == "generate-tokens-7"
    assert (answer["object"], answer["model"]) == ("chat.completion", "tiny")
    assert [one["index"] for one in answer["choices"]] == [0, 1]
    assert [one["finish_reason"] for one in answer["choices"]] == ["stop", "length"]
    first = answer["choices"][0]["message"]
    assert (first["role"], first["content"]) == ("assistant", "alpha beta gamma delta")
    completion_tokens = len(ALPHA) + 2
    assert answer["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": completion_tokens,
        "total_tokens": 9 + completion_tokens,
    }


async def test_completions_count_choices_over_all_prompts(plain: Caller) -> None:
    """llm-d/llm-d-inference-sim#678"""
    answers = [response(choice(ALPHA), choice(ALPHA, 1)) for _ in range(2)]
    body = {"model": "tiny", "generate_responses": answers, "prompt_tokens": [3, 4]}
    answer = await plain.good(COMPLETION, body)
    assert (answer["id"], answer["object"]) == ("generate-tokens-7", "text_completion")
    assert [one["index"] for one in answer["choices"]] == [0, 1, 2, 3]
    assert {one["text"] for one in answer["choices"]} == {"alpha beta gamma delta"}
    assert answer["usage"]["prompt_tokens"] == 7
    assert answer["usage"]["completion_tokens"] == 4 * len(ALPHA)


async def test_prompt_tokens_are_counted_where_nobody_tells_them(plain: Caller) -> None:
    body = {"generate_response": response(choice(ALPHA)), "prompt_token_ids": [4, 5, 6]}
    assert (await plain.good(CHAT, body))["usage"]["prompt_tokens"] == 3
    usage = {"prompt_tokens": 8, "prompt_tokens_details": {"cached_tokens": 2}}
    told = {"generate_response": response(choice(ALPHA), usage=usage)}
    counts = (await plain.good(CHAT, told))["usage"]
    assert counts["prompt_tokens"] == 8
    assert counts["prompt_tokens_details"] == {"cached_tokens": 2}


async def test_each_completion_keeps_its_prompts_logprobs(plain: Caller) -> None:
    """vllm-project/vllm#57929"""
    other = [None, *PROMPT_LOGPROBS[2:], {"9": {"logprob": -9.0}}]
    answers = [
        response(choice(ALPHA), prompt_logprobs=PROMPT_LOGPROBS),
        response(choice(ALPHA), choice(ALPHA, 1), prompt_logprobs=other),
    ]
    choices = (await plain.good(COMPLETION, {"generate_responses": answers}))["choices"]
    assert [one["prompt_logprobs"] for one in choices] == [PROMPT_LOGPROBS, other, other]


async def test_a_chat_answer_keeps_prompt_logprobs_and_what_is_for_the_router(
    plain: Caller,
) -> None:
    passed = {
        "prompt_logprobs": PROMPT_LOGPROBS,
        "kv_transfer_params": {"remote_engine_id": "e"},
        "metrics": {"queue_time_ms": 1.5},
    }
    answer = await plain.good(CHAT, {"generate_response": response(choice(ALPHA), **passed)})
    assert {name: answer[name] for name in passed} == passed


async def test_logprobs_carry_the_tokens_own_text_and_bytes(plain: Caller) -> None:
    """vllm-project/vllm#55029; sgl-project/sglang#39260: each token its own candidates."""
    body = {"generate_response": response(choice(ALPHA, logprobs={"content": LOGPROBS}))}
    content = (await plain.good(CHAT, body))["choices"][0]["logprobs"]["content"]
    assert len(content) == len(ALPHA)
    for place, (entry, token) in enumerate(zip(content, ALPHA, strict=True)):
        raw = TOKENIZER.token_bytes(token)
        assert bytes(entry["bytes"]) == raw
        assert entry["token"] == raw.decode()
        assert entry["logprob"] == -0.25 * place
        candidates = [bytes(one["bytes"]) for one in entry["top_logprobs"]]
        assert candidates == [raw, TOKENIZER.token_bytes(10 + place)]


async def test_completion_logprobs_point_into_the_text(plain: Caller) -> None:
    body = {"generate_responses": [response(choice(ALPHA, logprobs={"content": LOGPROBS}))]}
    one = (await plain.good(COMPLETION, body))["choices"][0]
    places = one["logprobs"]["text_offset"]
    tokens = one["logprobs"]["tokens"]
    for place, token in list(zip(places, tokens, strict=True))[:-1]:
        assert one["text"][place : place + len(token)] == token


async def test_thoughts_and_calls_are_told_apart_and_the_finish_says_so(parsing: Caller) -> None:
    body = {
        "generate_response": response(choice(ids_of(THOUGHT))),
        "chat_request": REQUEST,
        "prompt_token_ids": PROMPT,
    }
    told = join_whole((await parsing.good(CHAT, body))["choices"][0])
    assert told.reasoning == "need weather"
    assert told.content.strip() == "One moment."
    assert told.calls == [("get_weather", '{"city": "Rome"}')]
    assert told.finish == "tool_calls"


async def test_each_choice_has_call_ids_of_its_own(parsing: Caller) -> None:
    body = {
        "generate_response": response(choice(ids_of(CALL)), choice(ids_of(CALL), 1)),
        "chat_request": REQUEST,
        "prompt_token_ids": PROMPT,
    }
    answer = await parsing.good(CHAT, body)
    first, second = (join_whole(one).call_ids for one in answer["choices"])
    assert len(first) == len(second) == 1
    assert first != second


async def test_a_prompt_that_opened_a_thought_is_seen(parsing: Caller) -> None:
    body = {
        "generate_response": response(choice(ids_of("so\n</think>yes"))),
        "chat_request": {"messages": MESSAGES},
        "prompt_token_ids": ids_of("<think>\n", end=False),
    }
    told = join_whole((await parsing.good(CHAT, body))["choices"][0])
    assert (told.reasoning.strip(), told.content) == ("so", "yes")


async def test_a_parsed_answer_needs_the_request(parsing: Caller) -> None:
    """vllm-project/vllm#48617"""
    error = await parsing.refusal(CHAT, {"generate_response": response(choice(ALPHA))})
    assert (error["param"], error["code"]) == ("chat_request", "missing_required_parameter")


async def test_a_text_model_needs_none(plain: Caller) -> None:
    answer = await plain.good(CHAT, {"generate_response": response(choice(ALPHA))})
    assert answer["choices"][0]["message"]["content"] == "alpha beta gamma delta"


@pytest.mark.parametrize(("include", "text"), [(False, "alpha be"), (True, "alpha beta ga")])
async def test_a_stop_string_cuts_the_text(plain: Caller, include: bool, text: str) -> None:
    """vllm-project/vllm#57052: the engine only knows token ids, and went on after the stop."""
    request = {"stop": ["ta ga"], "include_stop_str_in_output": include}
    gone_on = choice(ALPHA, finish_reason="length")
    chat = {
        "generate_response": response(gone_on),
        "chat_request": {"messages": MESSAGES, **request},
    }
    (one,) = (await plain.good(CHAT, chat))["choices"]
    assert one["message"]["content"] == text
    assert (one["finish_reason"], one["stop_reason"]) == ("stop", "ta ga")
    completion = {
        "generate_responses": [response(gone_on)],
        "completion_request": {"prompt": "x", **request},
    }
    answer = await plain.good(COMPLETION, completion)
    (one,) = answer["choices"]
    assert (one["text"], one["finish_reason"], one["stop_reason"]) == (text, "stop", "ta ga")
    assert answer["usage"]["completion_tokens"] < len(ALPHA)


async def test_an_engines_own_stop_string_cuts_the_text_even_without_a_request(
    plain: Caller,
) -> None:
    ended = choice(ids_of("alpha beta gamma", end=False), stop_reason="ta ga")
    (one,) = (await plain.good(CHAT, {"generate_response": response(ended)}))["choices"]
    assert one["message"]["content"] == "alpha be"
    assert (one["finish_reason"], one["stop_reason"]) == ("stop", "ta ga")


async def test_the_token_that_ended_the_answer_is_no_text(plain: Caller) -> None:
    stop = TOKENIZER.encode_prompt(" delta")[-1]
    ended = choice([*ids_of("alpha", end=False), stop], stop_reason=stop)
    (one,) = (await plain.good(CHAT, {"generate_response": response(ended)}))["choices"]
    assert (one["message"]["content"], one["stop_reason"]) == ("alpha", stop)


async def test_a_last_token_that_ends_nothing_is_text(plain: Caller) -> None:
    """A service that leaves the end token out, or a finish_reason that is only the default."""
    ended = {"index": 0, "token_ids": ids_of("alpha beta", end=False)}
    (one,) = (await plain.good(CHAT, {"generate_response": response(ended)}))["choices"]
    assert (one["message"]["content"], one["finish_reason"]) == ("alpha beta", "stop")


@pytest.mark.parametrize("reason", ["abort", "repetition", None])
async def test_reasons_that_only_the_service_knows_go_through(
    plain: Caller, reason: str | None
) -> None:
    ended = choice(ids_of("alpha", end=False), finish_reason=reason)
    (one,) = (await plain.good(CHAT, {"generate_response": response(ended)}))["choices"]
    assert (one["message"]["content"], one["finish_reason"]) == ("alpha", reason)


async def test_special_tokens_are_shown_where_the_request_wants_them(plain: Caller) -> None:
    body = {
        "generate_response": response(choice([*ids_of("alpha"), *ids_of("beta")])),
        "chat_request": {"messages": MESSAGES, "skip_special_tokens": False},
    }
    (one,) = (await plain.good(CHAT, body))["choices"]
    assert one["message"]["content"] == "alpha<|im_end|>beta"


async def test_echo_gives_each_prompt_back(plain: Caller) -> None:
    body = {
        "generate_responses": [response(choice(ALPHA)), response(choice(ALPHA))],
        "completion_request": {"prompt": ["one ", "two "], "echo": True},
    }
    choices = (await plain.good(COMPLETION, body))["choices"]
    texts = ["one alpha beta gamma delta", "two alpha beta gamma delta"]
    assert [one["text"] for one in choices] == texts


async def test_token_ids_are_given_back_on_request(plain: Caller) -> None:
    body = {
        "generate_response": response(choice(ALPHA)),
        "chat_request": {"messages": MESSAGES, "return_token_ids": True},
        "prompt_token_ids": PROMPT,
    }
    (one,) = (await plain.good(CHAT, body))["choices"]
    assert (one["token_ids"], one["prompt_token_ids"]) == (ALPHA, PROMPT)


async def test_another_model_is_not_found(plain: Caller) -> None:
    body = {"model": "other", "generate_response": response(choice(ALPHA))}
    assert (await plain.refusal(CHAT, body, 404))["param"] == "model"
    many = {"model": "other", "generate_responses": [response(choice(ALPHA))]}
    assert (await plain.refusal(COMPLETION, many, 404))["param"] == "model"


FAR_TOO_LONG = [5] * 600
TOO_MANY = [{"token_id": 5, "logprob": -1.0}] * 22
WRONG_CHATS = {
    "generate_response": {},
    "generate_response.choices": {"generate_response": response()},
    "generate_response.choices[0].token_ids": {"generate_response": response(choice([]))},
    "generate_response.choices[0].token_ids[1]": {"generate_response": response(choice([1, -1]))},
    "generate_response.choices[1].index": {
        "generate_response": response(choice(ALPHA), {"token_ids": ALPHA})
    },
    "generate_response.output_mode": {
        "generate_response": response(choice(ALPHA), output_mode="text")
    },
    "prompt_token_ids": {
        "generate_response": response(choice(ALPHA)),
        "prompt_token_ids": FAR_TOO_LONG,
    },
    "generate_response.choices[0].logprobs.content": {
        "generate_response": response(choice(ALPHA, logprobs={"content": LOGPROBS[1:]}))
    },
    "chat_request.temperature": {
        "generate_response": response(choice(ALPHA)),
        "chat_request": {"messages": MESSAGES, "temperature": -1},
    },
}


@pytest.mark.parametrize("param", WRONG_CHATS)
async def test_what_is_wrong_is_a_400_that_names_the_field(plain: Caller, param: str) -> None:
    assert (await plain.refusal(CHAT, WRONG_CHATS[param]))["param"] == param


WRONG_COMPLETIONS = {
    "generate_responses": {"generate_responses": []},
    "prompt_tokens": {"generate_responses": [response(choice(ALPHA))] * 2, "prompt_tokens": [1]},
    "prompt_token_ids": {
        "generate_responses": [response(choice(ALPHA))] * 2,
        "prompt_token_ids": [PROMPT],
    },
    "prompt_token_ids[1]": {
        "generate_responses": [response(choice(ALPHA))] * 2,
        "prompt_token_ids": [None, FAR_TOO_LONG],
    },
    "generate_responses[1].choices[0].token_ids": {
        "generate_responses": [response(choice(ALPHA)), response(choice(None or []))]
    },
}


@pytest.mark.parametrize("param", WRONG_COMPLETIONS)
async def test_wrong_completions_are_a_400_that_names_the_field(plain: Caller, param: str) -> None:
    assert (await plain.refusal(COMPLETION, WRONG_COMPLETIONS[param]))["param"] == param


async def test_prompt_and_answer_must_fit_the_context(plain: Caller) -> None:
    body = {
        "generate_response": response(choice([5] * 200)),
        "prompt_token_ids": [5] * 313,
    }
    error = await plain.refusal(CHAT, body)
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "generate_response.choices[0].token_ids"


async def test_too_many_candidates_are_refused(plain: Caller) -> None:
    entry = {"token_id": 5, "logprob": -1.0, "top_logprobs": TOO_MANY}
    body = {"generate_response": response(choice([5], logprobs={"content": [entry]}))}
    error = await plain.refusal(CHAT, body)
    assert error["param"] == "generate_response.choices[0].logprobs.content"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b'{"generate_response":' + b"[" * 100_000]
)
async def test_what_is_no_json_object_is_a_400(plain: Caller, body: bytes) -> None:
    await plain.refusal(CHAT, body)


async def test_an_id_that_no_token_has_is_no_text(plain: Caller) -> None:
    """Models' vocabularies are often padded beyond their tokenizer's."""
    ended = choice([*ids_of("alpha", end=False), 2**31 - 1], finish_reason="length")
    (one,) = (await plain.good(CHAT, {"generate_response": response(ended)}))["choices"]
    assert one["message"]["content"] == "alpha"


async def test_tokens_rendered_under_other_settings_are_refused(plain: Caller) -> None:
    ours = (await plain.get("/fingerprint")).json()["text"]
    body = {"generate_response": response(choice(ALPHA))}
    same = await plain.post(CHAT, body, {"x-splitserve-fingerprint": ours})
    assert same.status_code == 200
    other = await plain.post(CHAT, body, {"x-splitserve-fingerprint": "0" * 16})
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "fingerprint_mismatch"
    assert ours in other.json()["error"]["message"]
