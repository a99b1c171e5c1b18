"""gpt-oss' messages."""

from splitserve.frontend.derender.call_ids import new_call_ids
from splitserve.frontend.derender.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolArguments,
    ToolCall,
)
from splitserve.frontend.derender.parsers.base import ToolSpec
from splitserve.frontend.derender.parsers.harmony import Harmony

CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"


def harmony() -> Harmony:
    return Harmony((ToolSpec("f"),), lambda index, name: f"{name}{index}")


def fed(*pieces: str) -> list[list[Event]]:
    parser = harmony()
    return [list(parser.feed(piece)) for piece in pieces]


def test_thoughts_and_answer_come_as_they_are_written() -> None:
    thoughts = fed("<|channel|>analysis<|message|>a", "b<|", "end|>")
    assert thoughts == [[ReasoningDelta("a")], [ReasoningDelta("b")], []]
    answer = fed("<|channel|>", "final", "<|message|>", "c", "<|return|>")
    assert answer == [[], [], [], [TextDelta("c")], []]


def test_an_answer_without_messages_is_not_held_back() -> None:
    assert fed("H", "i <", "b") == [[TextDelta("H")], [TextDelta("i ")], [TextDelta("<b")]]


def test_arguments_come_as_they_are_written() -> None:
    assert fed(CALL, ' {"a', '": 1', "}", "<|call|>") == [
        [],
        [ToolCall(0, "f0", "f"), ToolArguments(0, '{"a')],
        [ToolArguments(0, '": 1')],
        [ToolArguments(0, "}")],
        [],
    ]


def test_a_call_is_certain_with_its_first_brace_only() -> None:
    parser = harmony()
    assert list(parser.feed(f"{CALL} \n")) == []
    assert list(parser.feed("1")) == [TextDelta("<|channel|>"), TextDelta(f"{CALL[11:]} \n1")]


def test_calls_are_counted() -> None:
    parser = Harmony((ToolSpec("f"),), new_call_ids("seed"))
    events = parser.feed(f"{CALL}{{}}<|call|><|start|>assistant{CALL}{{}}<|call|>")
    calls = [event for event in events if isinstance(event, ToolCall)]
    assert [call.index for call in calls] == [0, 1]
    assert calls[0].call_id != calls[1].call_id


def test_its_markers_are_all_control_texts() -> None:
    assert Harmony.begin == "<|channel|>analysis<|message|>"
    assert Harmony.end == "<|end|>"
    assert set(Harmony.markers) == {
        "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>",
        "<|call|>",
    }  # fmt: skip
