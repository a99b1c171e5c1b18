"""Recorded forms of models' answers, and how they are to be read."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from splitserve.frontend.derender.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolArguments,
    ToolCall,
)
from splitserve.frontend.derender.parsers.base import Thinking, ToolSpec


@dataclass(frozen=True, slots=True)
class Call:
    """``arguments`` is the JSON value, or the exact text where that is no JSON (cut short)."""

    name: str
    arguments: Any
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """``text`` is what the model wrote after the prompt; the rest is what must come of it.

    ``call_id`` of a Call is compared where it is given: formats in which the model writes the id.
    """

    name: str
    text: str
    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    thinking: Thinking = "start"


@dataclass(slots=True)
class Read:
    """Events, joined as a client joins them."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    """``(id, name, arguments text)``"""


def read(events: Iterable[Event]) -> Read:
    """Asserts on the way what every stream of events promises: calls come in order, each with one
    begin, and nothing of a call comes after something else began."""
    found, open_call = Read(), -1
    for event in events:
        match event:
            case TextDelta(text):
                assert text
                found.content += text
                open_call = -1
            case ReasoningDelta(text):
                assert text
                found.reasoning += text
                open_call = -1
            case ToolCall(index, call_id, name):
                assert index == len(found.calls)
                found.calls.append((call_id, name, ""))
                open_call = index
            case ToolArguments(index, text):
                assert text
                assert index == open_call
                call_id, name, before = found.calls[index]
                found.calls[index] = (call_id, name, before + text)
    return found


def check(sample: Sample, found: Read) -> None:
    """Asserts that ``found`` is what ``sample`` says."""
    assert found.content == sample.content
    assert found.reasoning == sample.reasoning
    assert [name for _, name, _ in found.calls] == [call.name for call in sample.calls]
    for call, (call_id, _, arguments) in zip(sample.calls, found.calls, strict=True):
        if isinstance(call.arguments, str):
            assert arguments == call.arguments
        else:
            assert json.loads(arguments) == call.arguments
        assert call.call_id in (None, call_id)
