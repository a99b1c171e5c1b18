"""What Hermes' samples cannot say: when its events come."""

from splitserve.frontend.derender.call_ids import new_call_ids
from splitserve.frontend.derender.events import Event, TextDelta, ToolArguments, ToolCall
from splitserve.frontend.derender.parsers.tools.hermes import Hermes


def hermes() -> Hermes:
    return Hermes((), new_call_ids("seed"))


def test_a_call_comes_with_the_begin_of_its_arguments() -> None:
    parser = hermes()
    assert list(parser.feed('<tool_call>\n{"name": "weather", "arguments": ')) == []
    call, arguments = parser.feed("{")
    assert isinstance(call, ToolCall)
    assert (call.index, call.name) == (0, "weather")
    assert arguments == ToolArguments(0, "{")
    assert list(parser.feed('"ci')) == [ToolArguments(0, '"ci')]


def test_held_back_text_comes_out_as_soon_as_it_is_no_call() -> None:
    parser = hermes()
    assert list(parser.feed("<tool_")) == []
    assert list(parser.feed("box")) == [TextDelta("<tool_box")]
    assert list(parser.feed('<tool_call> {"name": ')) == []
    events = parser.feed("7")
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == (
        '<tool_call> {"name": 7'
    )


def test_content_before_a_call_does_not_wait_for_it() -> None:
    assert hermes().feed("Let me see.<tool_call>") == [TextDelta("Let me see.")]


def test_calls_of_one_tool_have_ids_of_their_own() -> None:
    one = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    calls = [event for event in hermes().feed(one + one) if isinstance(event, ToolCall)]
    assert [call.index for call in calls] == [0, 1]
    assert calls[0].call_id != calls[1].call_id


def test_the_state_is_as_small_as_what_is_held() -> None:
    parser = hermes()
    events: list[Event] = [*parser.feed("word " * 10_000)]
    assert len(str(parser.state())) < 120
    assert events
