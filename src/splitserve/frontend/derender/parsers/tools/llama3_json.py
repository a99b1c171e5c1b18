"""Llama 3.1, 3.2 and 3.3: an answer that begins with a JSON object is a call.

    {"name": "get_weather", "parameters": {"city": "Oslo"}}; {"name": ...}

Format: the chat templates of meta-llama/Llama-3.1-8B-Instruct and its successors. Objects are
separated by semicolons, commas, whitespace or any mix of these (vllm#49923); ``<|python_tag|>``
may come before the first.
"""

from typing import ClassVar, Final

from splitserve.frontend.derender.parsers.call_parser import (
    ANY_CALL,
    KNOWN_CALL,
    CallParser,
    Grammar,
    after,
)
from splitserve.frontend.derender.parsers.shape import OBJECT_AHEAD, SPACES, Shape

_TAG: Final = "<|python_tag|>"
_SEPARATORS: Final = Shape(r"[\s;,]{0,64}", OBJECT_AHEAD)


class Llama3Json(CallParser):
    """Without the tag, JSON may just be what was asked for: a call only if it names a tool."""

    markers: ClassVar[tuple[str, ...]] = (_TAG,)
    grammar: ClassVar[Grammar] = Grammar(
        openers={_TAG: ANY_CALL},
        before={"start": ((Shape(SPACES, OBJECT_AHEAD), KNOWN_CALL),)},
        after={
            after(ANY_CALL): ((_SEPARATORS, ANY_CALL),),
            after(KNOWN_CALL): ((_SEPARATORS, KNOWN_CALL),),
        },
        start="start",
    )
