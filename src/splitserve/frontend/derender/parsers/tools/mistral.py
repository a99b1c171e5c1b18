"""Mistral: a JSON list of calls, or name and arguments.

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}}, ...]
    [TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{"city": "Oslo"}[TOOL_CALLS]...

Format: mistral-common's tokenizers v3 to v7 (list) and v11 to v13 (name, with or without the
marks between).
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from splitserve.frontend.derender.parsers.base import CallIds, ToolSpec
from splitserve.frontend.derender.parsers.call_parser import (
    ANY_CALL,
    ARGUMENTS,
    TEXT,
    CallParser,
    Grammar,
    after,
)
from splitserve.frontend.derender.parsers.shape import (
    OBJECT_AHEAD,
    SPACES,
    TOOL_NAME,
    Shape,
    each,
)

_BEGIN: Final = "[TOOL_CALLS]"
_CALL_ID: Final = "[CALL_ID]"
_ARGS: Final = "[ARGS]"

_ID_DIGITS: Final = 9
"""Mistral's templates refuse the next turn when an id is not of nine letters and digits."""

_NAME: Final = (SPACES, TOOL_NAME, SPACES)
_ID: Final = (*each(_CALL_ID), SPACES, "[A-Za-z0-9]{1,64}", SPACES)
_OPEN: Final = (SPACES, OBJECT_AHEAD)


class Mistral(CallParser):
    """Ids are ours, also where the model writes one: models repeat those of earlier turns."""

    markers: ClassVar[tuple[str, ...]] = (_BEGIN, _CALL_ID, _ARGS)
    grammar: ClassVar[Grammar] = Grammar(
        openers={_BEGIN: "calls"},
        before={
            "calls": (
                (Shape(SPACES, r"\["), "list"),
                (Shape(*_OPEN), ANY_CALL),
                (Shape(*_NAME, OBJECT_AHEAD), ARGUMENTS),
                (Shape(*_NAME, *each(_ARGS), *_OPEN), ARGUMENTS),
                (Shape(*_NAME, *_ID, OBJECT_AHEAD), ARGUMENTS),
                (Shape(*_NAME, *_ID, *each(_ARGS), *_OPEN), ARGUMENTS),
            ),
            "list": ((Shape(*_OPEN), ANY_CALL),),
        },
        after={
            after(ANY_CALL): (
                (Shape(SPACES, ",", *_OPEN), ANY_CALL),
                (Shape(SPACES, r"\]"), TEXT),
            ),
        },
    )

    def __init__(self, tools: Sequence[ToolSpec], call_ids: CallIds) -> None:
        super().__init__(tools, lambda index, name: call_ids(index, name)[-_ID_DIGITS:])
