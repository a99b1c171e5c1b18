"""Calls whose parameters are tags: long strings stream, and nothing is run."""

import json

import pytest

from frontend.derender.parsers.sample import read
from frontend.derender.parsers.samples.deepseek_v32 import D
from frontend.derender.parsers.samples.typed_calls import TOOLS
from splitserve.frontend.derender.events import Event, TextDelta, ToolArguments
from splitserve.frontend.derender.parsers.base import Parser
from splitserve.frontend.derender.parsers.registry import tool_parser

BEFORE_VALUE = {
    "qwen3_coder": "<tool_call>\n<function=write_file>\n<parameter={}>\n",
    "glm45": "<tool_call>write_file\n<arg_key>{}</arg_key>\n<arg_value>",
    "deepseek_v32": f'<{D}function_calls>\n<{D}invoke name="write_file">\n'
    f'<{D}parameter name="{{}}" string="true">',
    "pythonic": "[write_file({}='",
}
AFTER_VALUE = {
    "qwen3_coder": "\n</parameter>\n</function>\n</tool_call>",
    "glm45": "</arg_value>\n</tool_call>",
    "deepseek_v32": f"</{D}parameter>\n</{D}invoke>\n</{D}function_calls>",
    "pythonic": "')]",
}
every = pytest.mark.parametrize("name", BEFORE_VALUE)


def made(name: str) -> Parser:
    return tool_parser(name)(TOOLS, lambda index, tool: f"{tool}{index}")


@every
def test_a_long_string_comes_as_it_is_written(name: str) -> None:
    """vllm#30439: a client waited for the whole of a file's text."""
    line = 'if a < b and "c" != \'d\': print("\\\\n", "é\U0001f600</p>")\n'
    text = (line.replace("'", '"').replace("\\", "/") if name == "pythonic" else line) * 150
    parser = made(name)
    events: list[Event] = list(parser.feed(BEFORE_VALUE[name].format("content")))
    fragments = []
    for at in range(0, len(text), 4):
        came = list(parser.feed(text[at : at + 4]))
        assert all(isinstance(event, ToolArguments) for event in came)
        fragments.append(len(came))
        events += came
    events += [*parser.feed(AFTER_VALUE[name]), *parser.finish()]
    assert sum(fragments[:3]) >= 1
    assert sum(fragments) >= len(fragments) * 3 // 4
    ((_, _, arguments),) = read(events).calls
    assert json.loads(arguments) == {"content": text}


@every
def test_space_between_calls_is_not_given_within_one(name: str) -> None:
    """sglang#37408: strict clients took a new call for it."""
    one = BEFORE_VALUE[name].format("path") + "x" + AFTER_VALUE[name]
    if name == "pythonic":
        one = f"{one[:-1]}, {one[1:]}"
        text = one
    else:
        text = f"{one}\n\n{one}\n"
    parser = made(name)
    events = [event for char in text for event in parser.feed(char)]
    events += parser.finish()
    assert [event for event in events if isinstance(event, TextDelta)] == []
    assert len(read(events).calls) == 2


@pytest.mark.parametrize("name", ["qwen3_coder", "glm45", "deepseek_v32"])
@pytest.mark.parametrize("key", ["anything", "limit", "tags", "path"])
def test_a_value_is_text_and_no_code(name: str, key: str) -> None:
    """CVE-2025-9141: arguments were evaluated."""
    code = "__import__('builtins').exit('ran')"
    parser = made(name)
    text = BEFORE_VALUE[name].format(key).replace("write_file", "search")
    text = text.replace(' string="true"', "") + code + AFTER_VALUE[name]
    ((_, _, arguments),) = read([*parser.feed(text), *parser.finish()]).calls
    assert json.loads(arguments) == {key: code}


@pytest.mark.parametrize("name", ["qwen3_coder", "glm45", "deepseek_v32"])
@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 1_000_000, "{" * 100_000])
def test_a_value_that_no_reader_could_take_is_a_string(name: str, value: str) -> None:
    parser = made(name)
    text = BEFORE_VALUE[name].format("anything").replace("write_file", "search")
    text = text.replace(' string="true"', "") + value + AFTER_VALUE[name]
    ((_, _, arguments),) = read([*parser.feed(text), *parser.finish()]).calls
    assert json.loads(arguments) == {"anything": value}


def test_a_value_that_goes_wrong_after_it_was_given_out_ends_the_call() -> None:
    """What a client has seen is not taken back."""
    numbers = "1, " * 2000
    begin = BEFORE_VALUE["qwen3_coder"].format("tags").replace("write_file", "search")
    end = "1, oops</para"
    for place in range(len(end)):
        parser = made("qwen3_coder")
        events = [*parser.feed(f"{begin}[{numbers}{end[:place]}"), *parser.feed(end[place:])]
        found = read([*events, *parser.finish()])
        assert found.content == "oops</para"
        assert found.calls == [("search0", "search", f'{{"tags": [{numbers}1, ')]


def test_a_list_that_is_not_closed_ends_with_its_tag() -> None:
    text = BEFORE_VALUE["glm45"].format("tags").replace("write_file", "search") + "[" + "1, " * 2000
    parser = made("glm45")
    found = read([*parser.feed(text + AFTER_VALUE["glm45"]), *parser.finish()])
    assert found.content == AFTER_VALUE["glm45"]
    assert found.calls[0][2].endswith("1, ")


def test_a_tag_may_not_be_longer_than_any_that_is_meant() -> None:
    text = "<tool_call><function=" + "x" * 600 + "></function></tool_call>"
    for size in (1, len(text)):
        parser = made("qwen3_coder")
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        events = [event for piece in pieces for event in parser.feed(piece)]
        assert read([*events, *parser.finish()]).content == text
