"""What an answer consists of, in the order it happens.

Everything that turns text into structure yields events, and everything that writes an answer
reads them; a new kind of event is a new struct here and one more case in the writers.
"""

from typing import Literal

import msgspec


class TextDelta(msgspec.Struct, frozen=True):
    """More of the answer's visible text; never empty."""

    text: str


Event = TextDelta


class Finish(msgspec.Struct, frozen=True):
    """Why the answer ended. ``stop_reason`` is the stop string or stop token id, if one did it."""

    reason: Literal["stop", "length"]
    stop_reason: int | str | None = None


class Scored(msgspec.Struct, frozen=True):
    """One output token with its log-probability and the likeliest alternatives, best first.

    ``offset`` is where its text begins, in characters of the answer (echo included).
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    offset: int


class Delta(msgspec.Struct, frozen=True):
    """What one chunk of tokens added to an answer. ``scored`` is None when not asked for.

    Text that may be the beginning of a stop string or of a character comes with a later delta
    than its token.
    """

    events: tuple[Event, ...] = ()
    token_ids: tuple[int, ...] = ()
    scored: tuple[Scored, ...] | None = None
    finish: Finish | None = None

    @property
    def text(self) -> str:
        if len(self.events) == 1:
            return self.events[0].text
        return "".join(event.text for event in self.events)
