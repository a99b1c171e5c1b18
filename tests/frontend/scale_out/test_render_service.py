"""Requests become the bodies of generate requests, field for field as vLLM's services have them."""

from frontend.scale_out.rig import TOKENIZER, WEATHER, Caller
from splitserve.frontend.fingerprint import short_fingerprint

CHAT = "/v1/chat/completions/render"
COMPLETION = "/v1/completions/render"
MESSAGES = [{"role": "user", "content": "hello world"}]
FIELDS = {
    "request_id",
    "token_ids",
    "sampling_params",
    "model",
    "stream",
    "stream_options",
    "return_token_ids",
    "reasoning_ended",
    "reasoning_parser_kwargs",
    "cache_salt",
    "priority",
    "output_mode",
    "token_offsets",
    "features",
    "content_parts",
    "kv_transfer_params",
    "ec_transfer_params",
}
"""Of vLLM's GenerateRequest."""

UNASKED = {
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}


async def test_a_chat_becomes_one_generate_request(plain: Caller) -> None:
    body = await plain.good(CHAT, {"model": "tiny", "messages": MESSAGES, "max_tokens": 5})
    prompt = "<|im_start|>user\nhello world<|im_end|>\n<|im_start|>assistant\n"
    assert set(body) == FIELDS
    assert TOKENIZER.decode(body["token_ids"], skip_special=False) == prompt
    assert body["request_id"].startswith("chatcmpl-")
    assert (body["model"], body["stream"], body["priority"]) == ("tiny", False, 0)
    assert body["sampling_params"] == {"max_tokens": 5, **UNASKED}
    assert body["stream_options"] is None


async def test_sampling_has_vllms_names(plain: Caller) -> None:
    asked = {
        "max_tokens": 9,
        "n": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.5,
        "seed": 11,
        "stop": ["ta ga"],
        "stop_token_ids": [4],
        "ignore_eos": True,
        "min_tokens": 2,
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
        "logit_bias": {"5": -1.5},
    }
    more = {"logprobs": True, "top_logprobs": 3}
    body = await plain.good(CHAT, {"messages": MESSAGES, **asked, **more})
    assert body["sampling_params"] == {**asked, "logprobs": 3}


async def test_without_max_tokens_the_answer_may_fill_the_context(plain: Caller) -> None:
    body = await plain.good(CHAT, {"messages": MESSAGES})
    assert body["sampling_params"]["max_tokens"] == 512 - len(body["token_ids"])


async def test_a_seed_is_passed_on_only_where_the_client_gave_one(plain: Caller) -> None:
    body = await plain.good(CHAT, {"messages": MESSAGES})
    assert "seed" not in body["sampling_params"]


async def test_stream_salt_and_priority_are_passed_on(plain: Caller) -> None:
    asked = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_salt": "tenant",
        "priority": -3,
        "return_token_ids": True,
    }
    body = await plain.good(CHAT, {"messages": MESSAGES, **asked})
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": False}
    assert (body["cache_salt"], body["priority"]) == ("tenant", -3)
    assert body["return_token_ids"] is True


async def test_transfer_parameters_of_a_client_go_nowhere(plain: Caller) -> None:
    """The router adds its own; a client's would name hosts to connect to."""
    asked = {"messages": MESSAGES, "kv_transfer_params": {"remote_host": "10.0.0.1"}}
    body = await plain.good(CHAT, asked)
    assert body["kv_transfer_params"] is None


async def test_each_prompt_becomes_a_generate_request(plain: Caller) -> None:
    asked = {"prompt": ["alpha", "beta gamma"], "n": 2, "stop": "ta ga"}
    first, second = await plain.good(COMPLETION, asked)
    assert TOKENIZER.decode(first["token_ids"], skip_special=True) == "alpha"
    assert TOKENIZER.decode(second["token_ids"], skip_special=True) == "beta gamma"
    assert first["request_id"].startswith("cmpl-")
    assert first["request_id"].removesuffix("-0") == second["request_id"].removesuffix("-1")
    for one in (first, second):
        assert one["sampling_params"] == {
            "max_tokens": 16,
            "n": 2,
            "stop": ["ta ga"],
            **UNASKED,
        }


async def test_one_prompt_is_still_a_list(plain: Caller) -> None:
    (only,) = await plain.good(COMPLETION, {"prompt": [7, 8, 9]})
    assert only["token_ids"] == [7, 8, 9]


async def test_the_clients_request_id_names_the_request(plain: Caller) -> None:
    body = {"messages": MESSAGES, "request_id": "from-body"}
    named = await plain.post(CHAT, body, {"x-request-id": "from-header"})
    assert named.json()["request_id"] == "chatcmpl-from-header"
    assert named.headers["x-request-id"] == "from-header"
    assert (await plain.good(CHAT, body))["request_id"] == "chatcmpl-from-body"


async def test_a_request_id_that_is_not_safe_is_refused(plain: Caller) -> None:
    error = await plain.refusal(CHAT, {"messages": MESSAGES, "request_id": "a\nb"})
    assert error["param"] == "request_id"


async def test_reasoning_is_described_where_a_parser_reads_it(parsing: Caller) -> None:
    asked = {"messages": MESSAGES, "chat_template_kwargs": {"enable_thinking": True}}
    body = await parsing.good(CHAT, asked)
    assert body["reasoning_ended"] is False
    kwargs = body["reasoning_parser_kwargs"]["chat_template_kwargs"]
    assert kwargs == {"enable_thinking": True}


async def test_tools_are_part_of_the_prompt(parsing: Caller) -> None:
    body = await parsing.good(CHAT, {"messages": MESSAGES, "tools": [WEATHER]})
    assert "get_weather" in TOKENIZER.decode(body["token_ids"], skip_special=True)


async def test_another_model_is_not_found(plain: Caller) -> None:
    error = await plain.refusal(CHAT, {"model": "other", "messages": MESSAGES}, 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")


async def test_a_wrong_field_is_named(plain: Caller) -> None:
    error = await plain.refusal(COMPLETION, {"prompt": "a", "temperature": -1})
    assert error["param"] == "temperature"


async def test_every_answer_tells_under_which_settings_it_was_made(plain: Caller) -> None:
    parts = (await plain.get("/fingerprint")).json()
    answer = await plain.post(CHAT, {"messages": MESSAGES})
    assert answer.headers["x-splitserve-fingerprint"] == parts["text"]
    assert parts["text"] == short_fingerprint(parts["parts"])
