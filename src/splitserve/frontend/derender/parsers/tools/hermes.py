"""Hermes 2 Pro, and all that were taught its format: Qwen2.5, Qwen3, QwQ.

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Oslo"}}
    </tool_call>

Format: the chat templates of NousResearch/Hermes-2-Pro and Qwen/Qwen3. The call ends where its
JSON ends, so ``</tool_call>`` inside of a string argument is text (sglang#28698).
"""

from typing import ClassVar, Final

from splitserve.frontend.derender.parsers.call_parser import (
    ANY_CALL,
    TEXT,
    CallParser,
    Grammar,
    after,
)
from splitserve.frontend.derender.parsers.shape import SPACES, Shape, each

_BEGIN: Final = "<tool_call>"
_END: Final = "</tool_call>"


class Hermes(CallParser):
    """Each call stands between tags of its own."""

    markers: ClassVar[tuple[str, ...]] = (_BEGIN, _END)
    grammar: ClassVar[Grammar] = Grammar(
        openers={_BEGIN: ANY_CALL},
        after={after(ANY_CALL): ((Shape(SPACES, *each(_END)), TEXT),)},
    )
