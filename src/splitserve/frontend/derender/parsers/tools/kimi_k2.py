"""Kimi K2.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0
    <|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|><|tool_calls_section_end|>

Format: the chat template and the tool call guidance of moonshotai/Kimi-K2-Instruct.
"""

from re import Match
from typing import ClassVar, Final

from msgspec.structs import replace

from splitserve.frontend.derender.events import ToolCall
from splitserve.frontend.derender.parsers.call_parser import CallParser, Grammar
from splitserve.frontend.derender.parsers.sections import sectioned
from splitserve.frontend.derender.parsers.shape import (
    OBJECT_AHEAD,
    SPACES,
    TOOL_NAME,
    Shape,
    each,
)

_SECTION: Final = "<|tool_calls_section_begin|>"
_BEGIN: Final = "<|tool_call_begin|>"
_ARGUMENTS: Final = "<|tool_call_argument_begin|>"
_END: Final = "<|tool_call_end|>"
_SECTION_END: Final = "<|tool_calls_section_end|>"

_NAMESPACE: Final = "functions."
_HEAD: Final = Shape(
    SPACES,
    TOOL_NAME,
    ":",
    "(?P<number>[0-9]{1,9})",
    SPACES,
    *each(_ARGUMENTS),
    SPACES,
    OBJECT_AHEAD,
)


class KimiK2(CallParser):
    """The id is the model's own, and has the tool's name in it: the model expects to read it again
    with the result.
    """

    markers: ClassVar[tuple[str, ...]] = (_SECTION, _BEGIN, _ARGUMENTS, _END, _SECTION_END)
    grammar: ClassVar[Grammar] = sectioned(_SECTION, _BEGIN, _HEAD, (_END, _SECTION_END))

    def _open(self, found: Match[str]) -> ToolCall:
        name = found["name"]
        call = self._calls.open(name.removeprefix(_NAMESPACE) or name)
        return replace(call, call_id=f"{name}:{found['number']}")
