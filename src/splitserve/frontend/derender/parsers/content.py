"""Content around tool calls."""

import re
from typing import Final

from splitserve.frontend.derender.events import Event, TextDelta
from splitserve.frontend.derender.parsers.base import JSONValue
from splitserve.frontend.derender.parsers.checkpoint import as_flag, as_text

_MOST_SPACES: Final = 4096
"""Whitespace characters that are held back; each time there are so many, they are content."""


SPACE: Final = r"\s"
"""What content does not end in while it goes through Content unchanged."""

any_prose: Final = re.compile(r"[\s\S]*\S").fullmatch
"""Matches text that does not end in whitespace."""


class Content:
    """Gives content out, but for whitespace at its end: that only separates it from what follows
    when a call follows, and is then no content. Nor is whitespace between calls and after the last.
    """

    __slots__ = ("_after_call", "_spaces")

    def __init__(self) -> None:
        self._spaces = ""
        self._after_call = False

    def feed(self, text: str) -> list[Event]:
        """The content that is certain by now."""
        if not text:
            return []
        shown = text.rstrip()
        if shown:
            before, spaces = self._spaces + shown, text[len(shown) :]
        else:
            before, spaces = "", self._spaces + text
        cut = len(spaces) - len(spaces) % _MOST_SPACES
        before, self._spaces = before + spaces[:cut], spaces[cut:]
        if not before:
            return []
        self._after_call = False
        return [TextDelta(before)]

    @property
    def waits(self) -> bool:
        """Whether something is held back, or a call was the last thing."""
        return bool(self._spaces) or self._after_call

    def call(self) -> None:
        """A call is there: whitespace before it was markup."""
        self._spaces = ""
        self._after_call = True

    def finish(self) -> list[Event]:
        """The answer has ended."""
        left, self._spaces = self._spaces, ""
        return [TextDelta(left)] if left and not self._after_call else []

    def state(self) -> JSONValue:
        """A JSON value for ``restore``."""
        return [self._spaces, self._after_call]

    def restore(self, state: JSONValue) -> None:
        """Goes on from ``state``. Raises ValueError for one that is none."""
        spaces, after_call = state
        held = as_text(spaces)
        if held.strip() or len(held) >= _MOST_SPACES:
            raise ValueError("this is not whitespace that is held back")
        self._spaces, self._after_call = held, as_flag(after_call)
