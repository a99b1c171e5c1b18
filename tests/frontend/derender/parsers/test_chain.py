"""Reasoning, then calls in what is no reasoning."""

import json

import pytest

from frontend.derender.parsers.sample import Read, read
from splitserve.frontend.derender.call_ids import new_call_ids
from splitserve.frontend.derender.parsers.chain import Chain
from splitserve.frontend.derender.parsers.reasoning.think import ThinkTags
from splitserve.frontend.derender.parsers.tools.qwen3_coder import Qwen3Coder

CALL = (
    "<tool_call>\n<function=weather>\n"
    "<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
)


def chain() -> Chain:
    return Chain(ThinkTags("start"), Qwen3Coder((), new_call_ids("seed")))


def parsed(pieces: list[str]) -> Read:
    """Restored between any two pieces."""
    parser = chain()
    events = []
    for piece in pieces:
        events += parser.feed(piece)
        state = json.loads(json.dumps(parser.state()))
        parser = chain()
        parser.restore(state)
    return read([*events, *parser.finish()])


TEXTS = {
    "a call after thoughts": (f"<think>need weather</think>{CALL}", "", "need weather", 1),
    "space between them": (f"<think>a</think>\n\n{CALL}\n", "", "a", 1),
    "a call within thoughts": (f"<think>is it {CALL}?</think>No.", "No.", f"is it {CALL}?", 0),
    "text and two calls": (f"<think>a</think>Look. {CALL}\n{CALL}", "Look.", "a", 2),
    "thoughts after a call are text": (f"{CALL}<think>a</think>", "<think>a</think>", "", 1),
    "cut in a call's begin": ("<think>a</think>b<tool_ca", "b<tool_ca", "a", 0),
    "cut in the thoughts' end": ("<think>a</thi", "", "a</thi", 0),
}


@pytest.mark.parametrize("name", TEXTS)
def test_thoughts_content_and_calls_are_told_apart_in_any_cut(name: str) -> None:
    text, content, reasoning, calls = TEXTS[name]
    whole = parsed([text])
    assert (whole.content, whole.reasoning, len(whole.calls)) == (content, reasoning, calls)
    for place in range(len(text) + 1):
        assert parsed([text[:place], text[place:]]) == whole


def test_a_call_has_its_name_and_arguments() -> None:
    ((_, name, arguments),) = parsed([TEXTS["a call after thoughts"][0]]).calls
    assert (name, json.loads(arguments)) == ("weather", {"city": "Oslo"})
