"""What Llama 3's samples cannot say: when its events come."""

from splitserve.frontend.derender.call_ids import new_call_ids
from splitserve.frontend.derender.events import TextDelta, ToolCall
from splitserve.frontend.derender.parsers.base import ToolSpec
from splitserve.frontend.derender.parsers.tools.llama3_json import Llama3Json


def llama() -> Llama3Json:
    return Llama3Json((ToolSpec("weather"),), new_call_ids("seed"))


def test_prose_streams() -> None:
    parser = llama()
    assert parser.feed("It") == [TextDelta("It")]
    assert parser.feed(' is {"a": 1}') == [TextDelta(' is {"a": 1}')]


def test_json_that_is_no_call_streams_from_the_first_key_that_says_so() -> None:
    parser = llama()
    assert parser.feed('{"city') == []
    events = [*parser.feed('": "'), *parser.feed("Oslo")]
    assert all(isinstance(event, TextDelta) for event in events)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == (
        '{"city": "Oslo'
    )


def test_a_name_that_is_no_tool_is_seen_at_its_end() -> None:
    parser = llama()
    assert parser.feed('{"name": "oslo') == []
    assert parser.feed('"') == [TextDelta('{"name": "oslo"')]


def test_a_call_is_seen_at_the_begin_of_its_arguments() -> None:
    first, *_ = llama().feed('{"name": "weather", "parameters": {')
    assert isinstance(first, ToolCall)
