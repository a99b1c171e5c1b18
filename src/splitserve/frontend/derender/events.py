"""What an answer consists of, in the order it happens.

Everything that turns text into structure yields events, and everything that writes an answer
reads them; a new kind of event is a new struct here and one more case in the writers.
"""

from collections.abc import Iterable

import msgspec


class TextDelta(msgspec.Struct, frozen=True, tag=True):
    """More of the answer's visible text; never empty."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag=True):
    """More of what the model thought before it answered; never empty."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, tag=True):
    """A call of tool ``name`` begins. ``index`` counts the answer's calls from 0."""

    index: int
    call_id: str
    name: str


class ToolArguments(msgspec.Struct, frozen=True, tag=True):
    """More of the JSON text of call ``index``'s arguments; never empty.

    All that belongs to one call comes before the next ToolCall and before any TextDelta after it.
    """

    index: int
    text: str


Event = TextDelta | ReasoningDelta | ToolCall | ToolArguments


class Finish(msgspec.Struct, frozen=True):
    """Why the answer ended: ``stop``, ``length`` or ``tool_calls``, or in the words of an engine.

    ``stop_reason`` is the stop string or stop token id, if one did it.
    """

    reason: str
    stop_reason: int | str | None = None


class Scored(msgspec.Struct, frozen=True):
    """One output token with its log-probability, its place among all tokens (from 1) and the
    likeliest alternatives, best first.

    ``offset`` is where its text begins, in characters of the answer (echo included).
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]
    offset: int


class Delta(msgspec.Struct, frozen=True):
    """What one chunk of tokens added to an answer. ``scored`` is None when not asked for.

    Text that may be the beginning of a stop string, of a marker or of a character comes with a
    later delta than its token.
    """

    events: tuple[Event, ...] = ()
    token_ids: tuple[int, ...] = ()
    scored: tuple[Scored, ...] | None = None
    finish: Finish | None = None

    @property
    def text(self) -> str:
        """The visible text alone."""
        return visible_text(self.events)


def visible_text(events: Iterable[Event]) -> str:
    """All TextDeltas of ``events``, joined."""
    return "".join([event.text for event in events if type(event) is TextDelta])
