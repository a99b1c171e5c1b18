"""Forced calls stream as soon as they are known."""

import pytest

from splitserve.frontend.derender.events import ToolArguments, ToolCall
from splitserve.frontend.derender.parsers.base import ToolSpec
from splitserve.frontend.derender.parsers.forced import NamedCall, RequiredCalls

TOOLS = (ToolSpec("weather"), ToolSpec("now"))


def call_id(index: int, name: str) -> str:
    return f"{name}-{index}"


def test_a_named_call_begins_with_the_first_brace() -> None:
    parser = NamedCall(TOOLS, call_id)
    assert parser.feed(" \n") == []
    assert parser.feed("{") == [ToolCall(0, "weather-0", "weather"), ToolArguments(0, "{")]
    assert parser.feed('"city') == [ToolArguments(0, '"city')]


def test_required_calls_begin_with_their_arguments() -> None:
    parser = RequiredCalls(TOOLS, call_id)
    assert parser.feed('[{"name": "now", "parameters": ') == []
    assert parser.feed("{") == [ToolCall(0, "now-0", "now"), ToolArguments(0, "{")]
    assert parser.feed('}}, {"name": "weather", "parameters":') == [ToolArguments(0, "}")]
    assert parser.feed("{") == [ToolCall(1, "weather-1", "weather"), ToolArguments(1, "{")]


def test_a_named_call_needs_a_tool() -> None:
    with pytest.raises(IndexError):
        NamedCall((), call_id)


def test_nothing_is_looked_for_that_is_a_special_token() -> None:
    assert (RequiredCalls.markers, NamedCall.markers) == ((), ())
