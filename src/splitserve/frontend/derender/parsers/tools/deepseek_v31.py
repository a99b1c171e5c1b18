"""DeepSeek V3.1.

    <|tool▁calls▁begin|><|tool▁call▁begin|>get_weather<|tool▁sep|>{"city": "Oslo"}
    <|tool▁call▁end|><|tool▁calls▁end|>

Format: the chat template of deepseek-ai/DeepSeek-V3.1, which has no whitespace between the marks.
The bars are U+FF5C.
"""

from typing import ClassVar, Final

from splitserve.frontend.derender.parsers import deepseek
from splitserve.frontend.derender.parsers.call_parser import CallParser, Grammar
from splitserve.frontend.derender.parsers.sections import sectioned
from splitserve.frontend.derender.parsers.shape import (
    OBJECT_AHEAD,
    SPACES,
    TOOL_NAME,
    Shape,
    each,
)

_HEAD: Final = Shape(SPACES, TOOL_NAME, SPACES, *each(deepseek.SEPARATOR), SPACES, OBJECT_AHEAD)


class DeepSeekV31(CallParser):
    """As V3, without the fence and the word before the name."""

    markers: ClassVar[tuple[str, ...]] = deepseek.MARKERS
    grammar: ClassVar[Grammar] = sectioned(
        deepseek.SECTION, deepseek.BEGIN, _HEAD, (deepseek.END, deepseek.SECTION_END)
    )
