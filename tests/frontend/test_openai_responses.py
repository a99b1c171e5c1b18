"""The official client's Responses API on a real server."""

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

TOOLS: list[Any] = [
    {
        "type": "function",
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
]
ANSWER = (
    "<think>One city.</think>Let me look.\n"
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
)


class City(BaseModel):
    name: str


@pytest.fixture
def answering(serve: Serve, tokenizer: Tokenizer) -> Iterator[Any]:
    """Gives a client of a server that always gives the same answer."""
    clients: list[OpenAI] = []

    def client(text: str, finish: FinishReason = "stop") -> OpenAI:
        ids = tokenizer.encode_prompt(text + ("<|im_end|>" if finish == "stop" else ""))
        live = serve(
            ScriptedGenerator(saying(ids, finish)), of=served(tokenizer, HERMES, max_model_len=4096)
        )
        clients.append(OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0))
        return clients[-1]

    yield client
    for one in clients:
        one.close()


def test_text_from_text(answering: Any) -> None:
    response = answering("Hello 안녕.").responses.create(model="tiny", input="hi")
    assert response.output_text == "Hello 안녕."
    assert response.status == "completed"
    assert response.id.startswith("resp-")
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_reasoning_message_and_call_are_items_in_order(answering: Any) -> None:
    response = answering(ANSWER).responses.create(model="tiny", input="hi", tools=TOOLS)
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert response.output[0].content[0].text == "One city."
    assert response.output_text == "Let me look."
    assert json.loads(response.output[2].arguments) == {"city": "Oslo"}


def test_a_stream_tells_every_item_and_ends_with_the_whole_answer(answering: Any) -> None:
    with answering(ANSWER).responses.stream(model="tiny", input="hi", tools=TOOLS) as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert kinds.count("response.output_item.added") == 3
    assert kinds.count("response.output_item.done") == 3
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == final.output_text == "Let me look."
    arguments = "".join(
        event.delta for event in events if event.type == "response.function_call_arguments.delta"
    )
    assert arguments == final.output[2].arguments == '{"city": "Oslo"}'


def test_an_answer_cut_by_length_is_incomplete(answering: Any) -> None:
    client = answering("Hello there", "length")
    response = client.responses.create(model="tiny", input="hi")
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    kinds = [event.type for event in client.responses.create(model="tiny", input="hi", stream=True)]
    assert kinds[-1] == "response.incomplete"


def test_a_conversation_is_given_whole(answering: Any) -> None:
    client = answering(ANSWER)
    first = client.responses.create(
        model="tiny", instructions="Be brief.", input="weather?", tools=TOOLS
    )
    call = first.output[-1]
    second = client.responses.create(
        model="tiny",
        input=[
            {"role": "user", "content": "weather?"},
            *(item.model_dump(exclude_none=True) for item in first.output),
            {"type": "function_call_output", "call_id": call.call_id, "output": "rain"},
        ],
        tools=TOOLS,
    )
    assert second.usage.input_tokens > first.usage.input_tokens
    assert first.instructions == "Be brief."


def test_structured_text_parses(answering: Any) -> None:
    response = answering('{"name": "Oslo"}').responses.parse(
        model="tiny", input="hi", text_format=City
    )
    assert response.output_parsed == City(name="Oslo")


@pytest.mark.parametrize(
    "field",
    [
        {"previous_response_id": "resp-1"},
        {"background": True},
        {"tools": [{"type": "web_search"}]},
        {"conversation": "c"},
    ],
)
def test_what_needs_memory_or_other_services_is_refused_by_name(
    answering: Any, field: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        answering("x").responses.create(model="tiny", input="hi", **field)
    assert next(iter(field)) in str(caught.value)
