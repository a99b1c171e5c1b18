"""Writes the events of content and tool calls, in order and joined."""

from collections.abc import Callable

from splitserve.frontend.derender.events import Event
from splitserve.frontend.derender.parsers.base import CallIds, JSONValue
from splitserve.frontend.derender.parsers.calls import CallWriter
from splitserve.frontend.derender.parsers.content import Content


class AnswerWriter:
    """``take`` gives what was written since. Arguments belong to the last call."""

    __slots__ = ("_arguments", "_calls", "_content", "_events")

    def __init__(self, call_ids: CallIds) -> None:
        self._calls = CallWriter(call_ids)
        self._content = Content()
        self._events: list[Event] = []
        self._arguments: list[str] = []

    @property
    def calls(self) -> int:
        """How many calls there are by now."""
        return self._calls.count

    @property
    def waits(self) -> bool:
        """Whether content is held back, or a call was the last thing."""
        return self._content.waits

    @property
    def more(self) -> Callable[[str], Event]:
        """Makes the event of more arguments of the last call."""
        return self._calls.more

    def content(self, text: str) -> None:
        """Text that is part of no call."""
        if text:
            self._join()
            self._events += self._content.feed(text)

    def call(self, name: str) -> None:
        """The next call begins."""
        self._join()
        self._content.call()
        self._events.append(self._calls.open(name))

    def arguments(self, text: str) -> None:
        """More of the JSON text of the last call's arguments."""
        self._arguments.append(text)

    def take(self) -> list[Event]:
        """The events since the last time."""
        self._join()
        events, self._events = self._events, []
        return events

    def finish(self) -> list[Event]:
        """As ``take``, when the answer has ended."""
        return [*self.take(), *self._content.finish()]

    def state(self) -> JSONValue:
        """A JSON value for ``restore``, when all events were taken."""
        return [self._calls.state(), self._content.state()]

    def restore(self, state: JSONValue) -> None:
        """Goes on from ``state``. Raises ValueError or TypeError for one that is none."""
        calls, content = state
        self._calls.restore(calls)
        self._content.restore(content)

    def _join(self) -> None:
        if self._arguments:
            text, self._arguments = "".join(self._arguments), []
            self._events += self._calls.arguments(text)
