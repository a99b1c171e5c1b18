"""Ids of Mistral's calls."""

import re

import pytest

from splitserve.frontend.derender.call_ids import new_call_ids
from splitserve.frontend.derender.events import ToolCall
from splitserve.frontend.derender.parsers.tools.mistral import Mistral


@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "f", "arguments": {}}]',
        "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]f[ARGS]{}",
        "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}",
    ],
)
def test_ids_are_nine_letters_and_digits_and_differ(text: str) -> None:
    events = Mistral((), new_call_ids("seed")).feed(text)
    ids = {event.call_id for event in events if isinstance(event, ToolCall)}
    assert len(ids) == 2
    assert all(re.fullmatch("[A-Za-z0-9]{9}", call_id) for call_id in ids)
