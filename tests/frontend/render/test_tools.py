"""Tools reach the template, earlier calls its syntax, and the answer's parsers what they need."""

import json
import re
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from frontend.render.templates import (
    CODER,
    DEEPSEEK,
    LLAMA,
    MISTRAL,
    PHI,
    PYTHONIC,
    QWEN,
    SPECIAL,
    model_of,
    renderer_of,
    tokenizer,
)
from splitserve.errors import CallerError
from splitserve.frontend.derender.call_ids import new_call_ids
from splitserve.frontend.derender.events import ToolArguments, ToolCall
from splitserve.frontend.derender.parsers.base import ToolSpec
from splitserve.frontend.derender.parsers.registry import tool_parser
from splitserve.frontend.render.job import Job

USER = {"role": "user", "content": "weather in Oslo?"}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "of a city", "parameters": PARAMETERS},
}
NOW = {"type": "function", "function": {"name": "now"}}


def chat(source: str, *messages: dict[str, Any], **fields: Any) -> Job:
    body = {"messages": messages or [USER], **fields}
    return renderer_of(source).chat(json.dumps(body).encode())


def text_of(job: Job) -> str:
    return tokenizer().decode(job.prompts[0].token_ids, skip_special=False)


def refused(source: str, **fields: Any) -> CallerError:
    with pytest.raises(CallerError) as caught:
        chat(source, **fields)
    assert caught.value.status == 400
    return caught.value


def called(arguments: str, content: str | None = None) -> list[dict[str, Any]]:
    function = {"name": "weather", "arguments": arguments}
    call = {"id": "abcdefghi", "type": "function", "function": function}
    return [
        USER,
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "rain"},
        {"role": "user", "content": "and now?"},
    ]


@pytest.mark.parametrize("source", [QWEN, LLAMA, MISTRAL], ids=["qwen", "llama", "mistral"])
def test_a_conversation_with_tools_has_the_ids_that_transformers_gives(source: str) -> None:
    reference = PreTrainedTokenizerFast(tokenizer_object=tokenizer().inner, **SPECIAL)
    messages = called('{"city": "Oslo", "days": 2}')
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    theirs = reference.apply_chat_template(
        messages,
        tools=[WEATHER],
        chat_template=source,
        add_generation_prompt=True,
        return_dict=False,
    )
    job = chat(source, *called('{"city": "Oslo", "days": 2}'), tools=[WEATHER])
    assert list(job.prompts[0].token_ids) == theirs


@pytest.mark.parametrize(
    ("source", "call"),
    [
        (QWEN, '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'),
        (LLAMA, '{"name": "weather", "parameters": {"city": "Oslo"}}<|eot_id|>'),
        (MISTRAL, '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Oslo"}, "id": '),
        (CODER, "<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>"),
        (PYTHONIC, '[weather(city="Oslo")]<|eot_id|>'),
        (DEEPSEEK, 'weather\n```json\n{"city":"Oslo"}\n```'),
    ],
    ids=["qwen", "llama", "mistral", "coder", "pythonic", "deepseek"],
)
def test_an_earlier_call_appears_in_the_templates_own_syntax(source: str, call: str) -> None:
    arguments = '{"city":"Oslo"}'
    assert call in text_of(chat(source, *called(arguments)))


ODD = {
    "city": "It's 5\" \\ and\na </tool_call> 한 <|im_end|>",
    "n": [1, -2.5, None, True],
    "o": {},
}


@pytest.mark.parametrize(
    ("source", "parser", "begin", "end"),
    [
        (QWEN, "hermes", "<tool_call>", "<|im_end|>\n<|im_start|>user"),
        (LLAMA, "llama3_json", '{"name"', "<|eot_id|><|start_header_id|>ipython"),
        (MISTRAL, "mistral", "[TOOL_CALLS]", "</s>"),
        (CODER, "qwen3_coder", "<tool_call>", "<|im_end|>\n<|im_start|>tool"),
        (PYTHONIC, "pythonic", "[weather", "<|eot_id|><|start_header_id|>tool"),
    ],
    ids=["hermes", "llama", "mistral", "coder", "pythonic"],
)
def test_a_rendered_call_parses_back_to_the_same_arguments(
    source: str, parser: str, begin: str, end: str
) -> None:
    text = text_of(chat(source, *called(json.dumps(ODD))))
    answer = text[text.index(begin) : text.index(end)]
    spec = ToolSpec(
        "weather",
        {"properties": {"city": {"type": "string"}, "n": {"type": "array"}}},
    )
    reader = tool_parser(parser)([spec], new_call_ids("seed"))
    events = [*reader.feed(answer), *reader.finish()]
    assert [event.name for event in events if isinstance(event, ToolCall)] == ["weather"]
    arguments = "".join(event.text for event in events if isinstance(event, ToolArguments))
    assert json.loads(arguments) == ODD


def test_tools_are_shown_as_they_came_but_for_what_is_no_matter_of_the_models() -> None:
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    text = text_of(chat(QWEN, tools=[strict, NOW]))
    assert json.dumps(WEATHER) in text
    assert json.dumps(NOW) in text


def test_with_choice_none_tools_are_not_shown_and_calls_not_read() -> None:
    job = chat(QWEN, tools=[WEATHER], tool_choice="none")
    assert job.prompts == chat(QWEN).prompts
    assert (job.context.choice, job.context.tools) == ("none", ())


@pytest.mark.parametrize(
    ("fields", "choice", "tools"),
    [
        ({}, "none", []),
        ({"tool_choice": "none"}, "none", []),
        ({"tools": []}, "none", []),
        ({"tools": [WEATHER, NOW]}, "auto", ["weather", "now"]),
        ({"tools": [WEATHER, NOW], "tool_choice": "required"}, "required", ["weather", "now"]),
        (
            {
                "tools": [WEATHER, NOW],
                "tool_choice": {"type": "function", "function": {"name": "now"}},
            },
            "named",
            ["now"],
        ),
    ],
)
def test_what_the_answers_reader_must_know(
    fields: dict[str, Any], choice: str, tools: list[str]
) -> None:
    context = chat(QWEN, **fields).context
    assert (context.reasoning, context.tool_calls) == ("qwen3", "hermes")
    assert context.choice == choice
    assert [tool.name for tool in context.tools] == tools
    assert all(
        tool.parameters == (PARAMETERS if tool.name == "weather" else {}) for tool in context.tools
    )


def test_parallel_calls_can_be_switched_off() -> None:
    assert chat(QWEN, tools=[WEATHER]).context.parallel
    assert not chat(QWEN, tools=[WEATHER], parallel_tool_calls=False).context.parallel


@pytest.mark.parametrize(
    "choice", ["auto", "required", {"type": "function", "function": {"name": "weather"}}]
)
def test_a_choice_needs_tools(choice: Any) -> None:
    assert refused(QWEN, tool_choice=choice).param == "tool_choice"


def test_a_named_tool_must_be_there() -> None:
    choice = {"type": "function", "function": {"name": "nothing"}}
    error = refused(QWEN, tools=[WEATHER], tool_choice=choice)
    assert (error.param, "nothing" in error.message) == ("tool_choice", True)


def test_a_template_that_shows_no_tools_leaves_no_choice_to_the_model() -> None:
    error = refused(PHI, tools=[WEATHER])
    assert (error.param, error.code) == ("tools", "tools_not_supported")
    assert "chat template" in error.message
    assert '"required"' in error.message
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        assert chat(PHI, tools=[WEATHER], tool_choice=choice).context.tools


def test_a_form_of_calls_that_nobody_reads_leaves_no_choice_to_the_model() -> None:
    source = (
        "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}{{ messages[0].content }}"
    )
    assert model_of(source).parsers.tool_calls is None
    assert refused(source, tools=[WEATHER]).code == "tools_not_supported"


def test_a_call_without_content_has_null_only_where_a_template_can_read_it() -> None:
    source = (
        "{% for m in messages %}{{ m.content + '|' }}{% for call in m.tool_calls or [] %}"
        "{{ call.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    assert text_of(chat(source, *called("{}"))) == "weather in Oslo?||{}rain|and now?|"


def test_thoughts_go_by_both_names() -> None:
    source = (
        "{% for m in messages %}{{ m.reasoning or '' }},"
        "{{ m.reasoning_content or '' }};{% endfor %}"
    )
    for name in ("reasoning", "reasoning_content"):
        said = {"role": "assistant", "content": "x", name: "hm"}
        assert text_of(chat(source, USER, said)) == ",;hm,hm;"


def test_results_carry_the_id_of_their_call() -> None:
    assert '"call_id": "abcdefghi"' in text_of(chat(MISTRAL, *called("{}")))


def test_a_template_of_short_ids_gets_them_for_calls_and_results_alike() -> None:
    messages = called("{}")
    text = text_of(chat(MISTRAL, *messages))
    messages[1]["tool_calls"][0]["id"] = messages[2]["tool_call_id"] = "call_0123456789abcdef"
    other = text_of(chat(MISTRAL, *messages))
    (short,) = ids_in(other)
    assert len(short) == 9
    assert other == text.replace("abcdefghi", short)
    messages[2]["tool_call_id"] = "call_other"
    assert len(ids_in(text_of(chat(MISTRAL, *messages)))) == 2


def ids_in(text: str) -> set[str]:
    return set(re.findall(r'"(?:id|call_id)": "(\w*)"', text))


def test_other_templates_get_ids_as_they_came() -> None:
    source = (
        "{% for m in messages %}{{ m.tool_calls[0].id if m.tool_calls }}"
        "{{ m.tool_call_id }}{% endfor %}"
    )
    messages = called("{}")
    messages[1]["tool_calls"][0]["id"] = "call_0123456789abcdef"
    assert text_of(chat(source, *messages)) == "call_0123456789abcdefabcdefghi"


def test_a_message_with_calls_cannot_be_continued() -> None:
    with pytest.raises(CallerError) as caught:
        chat(QWEN, *called("{}")[:2], continue_final_message=True)
    assert caught.value.param == "continue_final_message"


@pytest.mark.parametrize("content", ["OK!", "OK!\n", "OK! ", " OK", ""])
def test_a_message_can_be_continued_beside_tools(content: str) -> None:
    said = {"role": "assistant", "content": content}
    job = chat(QWEN, USER, said, tools=[WEATHER], continue_final_message=True)
    assert text_of(job).endswith(f"<|im_start|>assistant\n{content}")
    assert json.dumps(WEATHER) in text_of(job)


def test_documents_reach_the_template() -> None:
    source = "{% for doc in documents or [] %}{{ doc.title }};{% endfor %}{{ messages[0].content }}"
    job = chat(source, documents=[{"title": "a"}, {"title": "b"}])
    assert text_of(job) == "a;b;weather in Oslo?"
