"""Answers that are held to JSON because the client demands a call (``tool_choice``)."""

from collections.abc import Sequence
from re import Match
from typing import ClassVar

from splitserve.frontend.derender.events import ToolCall
from splitserve.frontend.derender.parsers.base import CallIds, ToolSpec
from splitserve.frontend.derender.parsers.call_parser import (
    ARGUMENTS,
    KNOWN_CALL,
    TEXT,
    CallParser,
    Grammar,
    after,
)
from splitserve.frontend.derender.parsers.shape import OBJECT_AHEAD, SPACES, Shape


class RequiredCalls(CallParser):
    """The whole answer is ``[{"name": "f", "parameters": {...}}, ...]``."""

    markers: ClassVar[tuple[str, ...]] = ()
    grammar: ClassVar[Grammar] = Grammar(
        before={"start": ((Shape(SPACES, r"\[", SPACES, OBJECT_AHEAD), KNOWN_CALL),)},
        after={
            after(KNOWN_CALL): (
                (Shape(SPACES, ",", SPACES, OBJECT_AHEAD), KNOWN_CALL),
                (Shape(SPACES, r"\]"), TEXT),
            ),
        },
        start="start",
    )


class NamedCall(CallParser):
    """The whole answer is the arguments of the first of ``tools``.

    Raises IndexError when there is none.
    """

    markers: ClassVar[tuple[str, ...]] = ()
    grammar: ClassVar[Grammar] = Grammar(
        before={"start": ((Shape(SPACES, OBJECT_AHEAD), ARGUMENTS),)},
        start="start",
    )

    def __init__(self, tools: Sequence[ToolSpec], call_ids: CallIds) -> None:
        super().__init__(tools, call_ids)
        self._tool = tools[0].name

    def _open(self, _found: Match[str]) -> ToolCall:
        return self._calls.open(self._tool)
