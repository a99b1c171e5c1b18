"""A request of the Responses API becomes the chat it means."""

import json
from typing import Any

import pytest

from frontend.render.templates import CONTEXT, QWEN, renderer_of, tokenizer
from splitserve.errors import CallerError
from splitserve.frontend.render.job import Job

FLAT = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
NESTED = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def respond(asked: Any = "hi", **fields: Any) -> Job:
    return renderer_of(QWEN).responses(json.dumps({"input": asked, **fields}).encode())


def chat(*messages: dict[str, Any], **fields: Any) -> Job:
    return renderer_of(QWEN).chat(json.dumps({"messages": messages, **fields}).encode())


def test_text_is_a_users_message() -> None:
    assert respond("hi").prompts == chat({"role": "user", "content": "hi"}).prompts


def test_instructions_come_first() -> None:
    expected = chat({"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"})
    assert respond(instructions="Be brief.").prompts == expected.prompts


def test_items_of_one_turn_are_one_message() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
        {
            "type": "reasoning",
            "id": "rs",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "One city."}],
        },
        {
            "type": "message",
            "id": "msg",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "sun"}],
        },
        {"type": "message", "role": "assistant", "content": "Rain."},
        {"type": "reasoning", "id": "rs2", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": "And sun."},
    ]
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"a": 1}'}},
        {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
    ]
    expected = chat(
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "reasoning": "One city.",
            "tool_calls": calls,
        },
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": "sun"},
        {"role": "assistant", "content": "Rain."},
        {"role": "assistant", "content": "And sun.", "reasoning": "Hm."},
    )
    assert respond(items).prompts == expected.prompts


@pytest.mark.parametrize(
    ("choice", "nested"),
    [
        ("auto", "auto"),
        ("required", "required"),
        (
            {"type": "function", "name": "weather"},
            {"type": "function", "function": {"name": "weather"}},
        ),
    ],
)
def test_tools_are_offered_as_in_a_chat(choice: Any, nested: Any) -> None:
    job = respond(tools=[FLAT], tool_choice=choice, parallel_tool_calls=False)
    expected = chat(
        {"role": "user", "content": "hi"},
        tools=[NESTED],
        tool_choice=nested,
        parallel_tool_calls=False,
    )
    assert (job.prompts, job.context) == (expected.prompts, expected.context)
    assert not job.context.parallel


def test_settings_arrive_under_their_names() -> None:
    job = respond(
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.9,
        top_logprobs=3,
        seed=7,
        stream=True,
        reasoning={"effort": "none"},
        store=True,
        metadata={"a": "b"},
    )
    params = job.sampling[0]
    assert (params.max_tokens, params.temperature, params.top_p) == (9, 0.5, 0.9)
    assert (params.logprobs, params.seed, job.stream) == (3, 7, True)
    assert job.context.thinking == "closed"


def test_logprobs_are_asked_for_by_inclusion() -> None:
    assert respond().sampling[0].logprobs is None
    assert respond(include=["message.output_text.logprobs"]).sampling[0].logprobs == 0


def test_truncation_makes_a_long_input_fit() -> None:
    long = "fox " * 4 * CONTEXT
    with pytest.raises(CallerError) as caught:
        respond(long)
    assert (caught.value.param, caught.value.code) == ("input", "context_length_exceeded")
    assert "'input'" in caught.value.message
    job = respond(long, truncation="auto", max_output_tokens=100)
    assert len(job.prompts[0].token_ids) == CONTEXT - 100
    assert job.sampling[0].max_tokens == 100


def test_what_the_answer_repeats() -> None:
    bare = respond().repeated
    assert bare["tools"] == []
    assert bare["tool_choice"] == "auto"
    assert bare["text"] == {"format": {"type": "text"}}
    assert bare["parallel_tool_calls"] is True
    full = respond(
        instructions="x",
        tools=[FLAT],
        tool_choice={"type": "function", "name": "weather"},
        metadata={"a": "b"},
        max_output_tokens=5,
    ).repeated
    assert (full["instructions"], full["max_output_tokens"]) == ("x", 5)
    assert full["tools"] == [{**FLAT, "strict": None}]
    assert full["tool_choice"] == {"type": "function", "name": "weather"}
    assert full["metadata"] == {"a": "b"}
    assert json.loads(json.dumps(full)) == full


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True}, "background"),
        ({"n": 2}, "n"),
        ({"previous_response_id": "resp-1"}, "previous_response_id"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"min_tokens": 9, "max_output_tokens": 8}, "min_tokens"),
        ({"model": "gpt-5"}, "model"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(CallerError) as caught:
        respond(**fields)
    assert caught.value.param == param


def test_typed_control_tokens_are_text_here_too() -> None:
    ids = respond("a<|im_end|>b").prompts[0].token_ids
    assert list(ids).count(tokenizer().inner.token_to_id("<|im_end|>")) == 1
