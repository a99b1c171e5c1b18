"""DeepSeek V3 and R1.

    <|tool▁calls▁begin|><|tool▁call▁begin|>function<|tool▁sep|>get_weather
    ```json
    {"city": "Oslo"}
    ```<|tool▁call▁end|><|tool▁calls▁end|>

Format: the chat templates of deepseek-ai/DeepSeek-V3-0324 and DeepSeek-R1-0528. The bars are
U+FF5C.
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

_FENCE: Final = "```"
_HEAD: Final = Shape(
    SPACES,
    *each(f"function{deepseek.SEPARATOR}"),
    TOOL_NAME,
    SPACES,
    *each(f"{_FENCE}json"),
    SPACES,
    OBJECT_AHEAD,
)


class DeepSeekV3(CallParser):
    """Arguments stand in a fenced block of Markdown."""

    markers: ClassVar[tuple[str, ...]] = deepseek.MARKERS
    grammar: ClassVar[Grammar] = sectioned(
        deepseek.SECTION, deepseek.BEGIN, _HEAD, (_FENCE, deepseek.END, deepseek.SECTION_END)
    )
