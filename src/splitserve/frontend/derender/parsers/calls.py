"""Writes the events of tool calls, in order."""

from splitserve.frontend.derender.events import Event, ToolArguments, ToolCall
from splitserve.frontend.derender.parsers.base import CallIds, JSONValue
from splitserve.frontend.derender.parsers.checkpoint import as_count


class CallWriter:
    """Counts an answer's calls; arguments belong to the last that was opened."""

    __slots__ = ("_call_ids", "count")

    def __init__(self, call_ids: CallIds) -> None:
        self._call_ids = call_ids
        self.count = 0

    def open(self, name: str) -> ToolCall:
        """The next call begins."""
        index, self.count = self.count, self.count + 1
        return ToolCall(index, self._call_ids(index, name), name)

    def more(self, text: str) -> Event:
        """More of the arguments' JSON text; not empty."""
        return ToolArguments(self.count - 1, text)

    def arguments(self, text: str) -> tuple[Event, ...]:
        """More of the arguments' JSON text, which may be empty."""
        return (self.more(text),) if text else ()

    def state(self) -> JSONValue:
        """A JSON value for ``restore``."""
        return self.count

    def restore(self, state: JSONValue) -> None:
        """Goes on from ``state``. Raises ValueError for one that is none."""
        self.count = as_count(state)
