"""Parser: what every format of reasoning and tool calls implements."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec

from splitserve.frontend.derender.events import Event

JSONValue = Any
"""What ``json.loads`` can return."""

CallIds = Callable[[int, str], str]
"""``(index, tool name) -> id`` of a call. Called once a call, when its ToolCall is made."""

Thinking = Literal["open", "closed", "start"]
"""Where the prompt left the model: inside a block of reasoning, after one, or where it may still
begin one as the first thing it writes."""


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool the client offers. ``parameters`` is its JSON schema, as the client sent it."""

    name: str
    parameters: dict[str, JSONValue] = {}


def anything(text: str) -> bool | None:
    """Matches every text but the empty one."""
    return bool(text) or None


class Quiet(NamedTuple):
    """Text that is just more of the same: all that ``matches`` makes one ``event`` and changes
    nothing else. A shorter way for most tokens of an answer."""

    matches: Callable[[str], object | None]
    event: Callable[[str], Event]


class Parser(Protocol):
    """State of one answer. Pure.

    Whatever ``feed`` gets, cut in whatever pieces, the events merged (neighbours of one kind
    joined) are the same. No character is lost: what is not part of a well-formed block comes out
    as content (TextDelta), in its place, markers included. That holds until a ToolCall is out: a
    name and the begin of its arguments cannot be taken back, so what is wrong after that is
    content from the first wrong character on, and the arguments are the exact text before it.
    """

    def feed(self, text: str) -> Sequence[Event]:
        """Events that ``text`` makes certain. Never gives out what may be the start of a marker,
        and never holds back more than the longest marker or a call's part before its arguments."""
        ...

    def finish(self) -> Sequence[Event]:
        """The answer has ended: what was held back. Nothing may be fed afterwards."""
        ...

    def quiet(self) -> Quiet | None:
        """How text may go around ``feed`` until the next call of it, if any may. ``matches`` does
        not match the empty text."""
        ...

    def state(self) -> JSONValue:
        """A JSON value of which ``restore`` makes an equal parser. Small: bounded by what is held
        back, not by the answer's length."""
        ...

    def restore(self, state: JSONValue) -> None:
        """Undoes everything since construction and goes on from ``state``.

        Raises ValueError, KeyError or TypeError for a value that ``state`` did not give.
        """
        ...


class ReasoningParser(Parser, Protocol):
    """Gives ReasoningDelta and TextDelta only. Constructed with ``(thinking)``.

    ``begin`` and ``end`` are the markers of a block of reasoning. ``markers`` are all texts it
    looks for, so that they are shown to it where they are special tokens.
    """

    begin: ClassVar[str]
    end: ClassVar[str]
    markers: ClassVar[tuple[str, ...]]

    def __init__(self, thinking: Thinking) -> None: ...


class ToolParser(Parser, Protocol):
    """Gives TextDelta, ToolCall and ToolArguments. Constructed with ``(tools, call_ids)``.

    ``markers`` are all texts it looks for, so that they are shown to it where they are special
    tokens. A call's arguments joined are one JSON object. A format whose calls begin with a marker
    takes any tool name; one without a marker takes the names in ``tools`` only.
    """

    markers: ClassVar[tuple[str, ...]]

    def __init__(self, tools: Sequence[ToolSpec], call_ids: CallIds) -> None: ...
