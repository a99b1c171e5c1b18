"""The official client's tools, reasoning, structured outputs and helpers on a real server."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from frontend.conftest import Serve
from frontend.samples import HERMES, served
from frontend.scripted import ScriptedGenerator, saying
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.protocol.generate import FinishReason

MESSAGES: list[Any] = [{"role": "user", "content": "weather in Oslo and Rome?"}]
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]
TWO_CALLS = (
    "<think>Two cities.</think>Let me look.\n"
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Röme 🌧"}}\n</tool_call>'
)
CITIES = [{"city": "Oslo"}, {"city": "Röme 🌧"}]


class Weather(BaseModel):
    city: str
    degrees: int


@pytest.fixture
def answering(serve: Serve, tokenizer: Tokenizer) -> Iterator[Any]:
    """Gives a client of a server that always gives the same answer."""
    clients: list[OpenAI] = []

    def client(text: str, finish: FinishReason = "stop") -> OpenAI:
        # The token that ends an answer is not part of its text.
        ending = "<|im_end|>" if finish == "stop" else ""
        ids = tokenizer.encode_prompt(text + ending)
        live = serve(
            ScriptedGenerator(saying(ids, finish)), of=served(tokenizer, HERMES, max_model_len=4096)
        )
        clients.append(OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0))
        return clients[-1]

    yield client
    for one in clients:
        one.close()


def test_tool_calls_in_a_whole_answer(answering: Any) -> None:
    answer = answering(TWO_CALLS).chat.completions.create(
        model="tiny", messages=MESSAGES, tools=TOOLS
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look."
    assert choice.message.reasoning == "Two cities."
    assert [json.loads(call.function.arguments) for call in choice.message.tool_calls] == CITIES
    assert [call.function.name for call in choice.message.tool_calls] == ["weather", "weather"]
    assert len({call.id for call in choice.message.tool_calls}) == 2


def test_a_streamed_answer_folds_to_the_whole_one(answering: Any) -> None:
    client = answering(TWO_CALLS)
    events = list(
        client.chat.completions.create(model="tiny", messages=MESSAGES, tools=TOOLS, stream=True)
    )
    deltas = [event.choices[0].delta for event in events]
    assert "".join(getattr(delta, "reasoning", None) or "" for delta in deltas) == "Two cities."
    assert "".join(delta.content or "" for delta in deltas) == "Let me look."
    calls: dict[int, list[str]] = {}
    for delta in deltas:
        for call in delta.tool_calls or []:
            assert (call.id is None) == (call.index in calls)
            calls.setdefault(call.index, []).append(call.function.arguments or "")
    assert [json.loads("".join(parts)) for parts in calls.values()] == CITIES
    assert [event.choices[0].finish_reason for event in events].count(None) == len(events) - 1
    assert events[-1].choices[0].finish_reason == "tool_calls"


def test_the_clients_stream_helper_reads_tool_calls(answering: Any) -> None:
    with answering(TWO_CALLS).chat.completions.stream(
        model="tiny", messages=MESSAGES, tools=TOOLS
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds
    calls = final.choices[0].message.tool_calls
    assert [call.function.parsed_arguments for call in calls] == CITIES
    assert final.choices[0].finish_reason == "tool_calls"


def test_only_the_first_call_when_calls_must_not_be_parallel(answering: Any) -> None:
    answer = answering(TWO_CALLS).chat.completions.create(
        model="tiny", messages=MESSAGES, tools=TOOLS, parallel_tool_calls=False
    )
    (call,) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == CITIES[0]


def test_without_tools_or_with_choice_none_calls_are_content(answering: Any) -> None:
    text = '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
    client = answering(text)
    plain = client.chat.completions.create(model="tiny", messages=MESSAGES)
    none = client.chat.completions.create(
        model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice="none"
    )
    for answer in (plain, none):
        assert answer.choices[0].message.content == text
        assert answer.choices[0].message.tool_calls is None
        assert answer.choices[0].finish_reason == "stop"


def test_a_required_call_is_held_to_the_tools_schema(answering: Any) -> None:
    answer = answering('[{"name": "weather", "parameters": {"city": "Oslo"}}]')
    choice = answer.chat.completions.create(
        model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice="required"
    ).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert json.loads(choice.message.tool_calls[0].function.arguments) == CITIES[0]
    assert choice.message.content is None


def test_a_named_call_is_the_whole_answer(answering: Any) -> None:
    choice = (
        answering('{"city": "Oslo"}')
        .chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            tools=TOOLS,
            tool_choice={"type": "function", "function": {"name": "weather"}},
        )
        .choices[0]
    )
    assert choice.finish_reason == "stop"
    assert choice.message.tool_calls[0].function.name == "weather"
    assert choice.message.tool_calls[0].function.arguments == '{"city": "Oslo"}'


def test_a_call_cut_by_length_keeps_the_exact_prefix(answering: Any) -> None:
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ro'
    choice = (
        answering(text, "length")
        .chat.completions.create(model="tiny", messages=MESSAGES, tools=TOOLS)
        .choices[0]
    )
    assert choice.finish_reason == "length"
    assert choice.message.tool_calls[0].function.arguments == '{"city": "Ro'


def test_a_malformed_call_is_content(answering: Any) -> None:
    text = '<tool_call>\n{"name": 7, "arguments"</tool_call> sorry'
    choice = (
        answering(text)
        .chat.completions.create(model="tiny", messages=MESSAGES, tools=TOOLS)
        .choices[0]
    )
    assert choice.message.content == text
    assert choice.finish_reason == "stop"


def test_reasoning_can_be_left_out(answering: Any) -> None:
    answer = answering("<think>hm</think>42").chat.completions.create(
        model="tiny", messages=MESSAGES, extra_body={"include_reasoning": False}
    )
    assert answer.choices[0].message.content == "42"
    assert getattr(answer.choices[0].message, "reasoning", None) is None


def test_a_stop_string_that_is_never_hit_changes_nothing(answering: Any) -> None:
    client = answering("<think>a thought</think>An answer.")
    for length in range(1, 21):
        stream = client.chat.completions.create(
            model="tiny", messages=MESSAGES, stop=["Z" * length], stream=True
        )
        deltas = [event.choices[0].delta for event in stream]
        assert "".join(getattr(delta, "reasoning", None) or "" for delta in deltas) == "a thought"
        assert "".join(delta.content or "" for delta in deltas) == "An answer."


def test_structured_outputs_parse(answering: Any) -> None:
    client = answering('{"city": "Oslo", "degrees": -3}')
    parsed = client.chat.completions.parse(model="tiny", messages=MESSAGES, response_format=Weather)
    assert parsed.choices[0].message.parsed == Weather(city="Oslo", degrees=-3)
    with client.chat.completions.stream(
        model="tiny", messages=MESSAGES, response_format=Weather
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == Weather(city="Oslo", degrees=-3)


def test_an_invalid_schema_is_the_callers_fault(answering: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "something"}}}
    with pytest.raises(openai.BadRequestError, match="response_format"):
        answering("{}").chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": schema},
            },
        )


def test_a_tool_conversation_goes_on(answering: Any) -> None:
    client = answering(TWO_CALLS)
    first = client.chat.completions.create(model="tiny", messages=MESSAGES, tools=TOOLS)
    message = first.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in message.tool_calls
    ]
    second = client.chat.completions.create(
        model="tiny", messages=[*MESSAGES, message, *results], tools=TOOLS
    )
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


def test_counts_go_with_every_chunk_when_asked(answering: Any) -> None:
    stream = answering("one two three").chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )
    counts = [event.usage.completion_tokens for event in stream]
    assert counts == sorted(counts)
    assert counts[0] <= 1 < counts[-1]
