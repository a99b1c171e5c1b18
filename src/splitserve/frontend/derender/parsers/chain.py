"""Reasoning first, then tool calls in what is no reasoning."""

from collections.abc import Sequence

from splitserve.frontend.derender.events import Event, TextDelta
from splitserve.frontend.derender.parsers.base import JSONValue, Parser, Quiet, anything


class Chain:
    """A Parser of two: ``second`` reads the content that ``first`` finds."""

    def __init__(self, first: Parser, second: Parser) -> None:
        self._first = first
        self._second = second
        # From there on the first one passes everything on as it is.
        self._first_is_over = False

    def feed(self, text: str) -> Sequence[Event]:
        if self._first_is_over:
            return self._second.feed(text)
        return self._through(self._first.feed(text))

    def finish(self) -> Sequence[Event]:
        return [*self._through(self._first.finish()), *self._second.finish()]

    def quiet(self) -> Quiet | None:
        if self._first_is_over:
            return self._second.quiet()
        first = self._first.quiet()
        if first is None or first.event is not TextDelta:
            return first
        second = self._second.quiet()
        self._first_is_over = first.matches is anything
        if second is None or self._first_is_over:
            return second
        both = (first.matches, second.matches)
        return Quiet(lambda text: all(matches(text) for matches in both) or None, second.event)

    def state(self) -> JSONValue:
        return [self._first.state(), self._second.state()]

    def restore(self, state: JSONValue) -> None:
        first, second = state
        self._first_is_over = False
        self._first.restore(first)
        self._second.restore(second)

    def _through(self, events: Sequence[Event]) -> Sequence[Event]:
        if len(events) == 1 and type(event := events[0]) is TextDelta:
            return self._second.feed(event.text)
        found: list[Event] = []
        for event in events:
            if type(event) is TextDelta:
                found += self._second.feed(event.text)
            else:
                found.append(event)
        return found
