"""Content around tool calls."""

from splitserve.frontend.derender.events import Event, TextDelta


class Content:
    """Gives content out, but for whitespace at its end: that only separates it from what follows
    when a call follows, and is then no content. Nor is whitespace between calls and after the last.
    """

    __slots__ = ("_after_call", "_spaces")

    def __init__(self) -> None:
        self._spaces: list[str] = []
        self._after_call = False

    def feed(self, text: str) -> list[Event]:
        """The content that is certain by now."""
        if not text:
            return []
        if not self._spaces and not text[-1].isspace():
            self._after_call = False
            return [TextDelta(text)]
        shown = text.rstrip()
        if not shown:
            self._spaces.append(text)
            return []
        before = "".join(self._spaces)
        self._spaces = [text[len(shown) :]] if len(shown) < len(text) else []
        self._after_call = False
        return [TextDelta(before + shown)]

    def call(self) -> None:
        """A call is there: whitespace before it was markup."""
        self._spaces = []
        self._after_call = True

    def finish(self) -> list[Event]:
        """The answer has ended."""
        left, self._spaces = "".join(self._spaces), []
        return [TextDelta(left)] if left and not self._after_call else []

    def state(self) -> list[object]:
        """A JSON value for ``restore``."""
        return ["".join(self._spaces), self._after_call]

    def restore(self, state: list[object]) -> None:
        """Goes on from ``state``."""
        spaces, after_call = state
        self._spaces = [str(spaces)] if spaces else []
        self._after_call = bool(after_call)
