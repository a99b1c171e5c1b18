"""The machine behind all formats in which a call's arguments are a JSON object.

    text        content, until an opener's marker
    before ...  what leads from the marker to the call; held back, for it may be none after all
    a call      an object with name and arguments, or arguments alone when the name came before
    after ...   what belongs to the call behind it, or leads to the next

What a format has to say is a Grammar: which states there are before and after a call, and which
shapes lead from one to the next. What fits no shape is content, and looked through for markers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from re import Match
from typing import ClassVar, Final

from splitserve.frontend.derender.events import Event, TextDelta, ToolCall
from splitserve.frontend.derender.parsers.base import CallIds, JSONValue, Quiet, ToolSpec
from splitserve.frontend.derender.parsers.calls import CallWriter
from splitserve.frontend.derender.parsers.checkpoint import as_one_of, as_text, hold
from splitserve.frontend.derender.parsers.content import SPACE, Content, any_prose
from splitserve.frontend.derender.parsers.json_call import CallObject
from splitserve.frontend.derender.parsers.json_scan import JsonScanner, string_run
from splitserve.frontend.derender.parsers.marks import MarkFinder
from splitserve.frontend.derender.parsers.shape import Shape

TEXT: Final = "text"
ARGUMENTS: Final = "arguments"
"""The arguments of a call whose name the shape before it matched."""
ANY_CALL: Final = "any call"
"""An object with name and arguments."""
KNOWN_CALL: Final = "known call"
"""The same, but only of a tool that the client offers."""

_CALLS: Final = frozenset((ARGUMENTS, ANY_CALL, KNOWN_CALL))

_BLOCK: Final = 4096
"""Characters that are looked at together: what is left of them is copied at every step."""

Steps = Mapping[str, Sequence[tuple[Shape, str]]]
"""State -> the shapes that may come, and the state that each leads to."""


def after(call: str) -> str:
    """The state when a call of this kind has ended."""
    return f"after {call}"


@dataclass(frozen=True, slots=True)
class Grammar:
    """``openers`` are markers and the states they lead to; none is the begin of another.

    What is matched in a state of ``before`` is given back if no call comes of it; what is matched
    in one of ``after`` is part of the call that has ended, unless it leads to the next.
    """

    openers: Mapping[str, str] = field(default_factory=dict)
    before: Steps = field(default_factory=dict)
    after: Steps = field(default_factory=dict)
    start: str = TEXT

    def shapes(self, state: str) -> Sequence[tuple[Shape, str]]:
        """What may come in ``state``."""
        return self.before.get(state) or self.after[state]

    def states(self) -> frozenset[str]:
        """All there are."""
        return _CALLS | {TEXT, *self.before, *self.after}


class CallParser:
    """A ToolParser of one Grammar."""

    grammar: ClassVar[Grammar]
    markers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, tools: Sequence[ToolSpec], call_ids: CallIds) -> None:
        self._names = frozenset(tool.name for tool in tools)
        self._calls = CallWriter(call_ids)
        self._content = Content()
        self._events: list[Event] = []
        openers = self.grammar.openers
        self._finder = MarkFinder(openers) if openers else None
        prose = any_prose if self._finder is None else self._finder.run(last=SPACE)
        self._prose = Quiet(prose, TextDelta)
        self._string = Quiet(string_run, self._calls.more)
        # What was read since a call has become possible: the marker that opened it, what was
        # matched after it, and the text in the present state.
        self._marker = self._held = self._here = ""
        self._scanner: JsonScanner | None = None
        self._object: CallObject | None = None
        self._state = self.grammar.start
        # Text still to be looked at, the first block last. Empty between calls of feed.
        self._ahead: list[str] = []

    def feed(self, text: str) -> Sequence[Event]:
        # A shorter way for the inside of arguments, with the same result.
        inside = None if self._object is None else self._object.inside(text)
        if inside is not None:
            return self._calls.arguments(inside)
        self._push(text)
        self._run()
        return self._taken()

    def finish(self) -> Sequence[Event]:
        while self._state != TEXT and not self._begun:
            self._give_back("")
            self._run()
        if self._finder is not None:
            self._events += self._content.feed(self._finder.finish()[0])
        self._events += self._content.finish()
        return self._taken()

    def quiet(self) -> Quiet | None:
        if self._state == TEXT:
            if self._content.waits or (self._finder is not None and self._finder.held):
                return None
            return self._prose
        reading = self._scanner or self._object
        return self._string if reading is not None and reading.in_string else None

    def state(self) -> JSONValue:
        reading = self._scanner or self._object
        return [
            self._state,
            self._marker,
            self._held,
            self._here,
            None if reading is None else reading.state(),
            "" if self._finder is None else self._finder.held,
            self._calls.state(),
            self._content.state(),
        ]

    def restore(self, state: JSONValue) -> None:
        name, marker, held, here, reading, sought, calls, content = state
        self._enter(as_one_of(name, self.grammar.states()))
        self._marker = as_one_of(marker, {"", *self.grammar.openers})
        self._held, self._here = as_text(held), as_text(here)
        reader = self._scanner or self._object
        if reader is not None:
            reader.restore(reading)
        if self._finder is not None:
            hold(self._finder, sought)
        self._calls.restore(calls)
        self._content.restore(content)

    def _open(self, found: Match[str]) -> ToolCall:
        """The call whose arguments come next."""
        return self._calls.open(found["name"])

    @property
    def _begun(self) -> bool:
        """Whether a call is being read that cannot be taken back any more."""
        return self._scanner is not None or (self._object is not None and self._object.begun)

    def _push(self, text: str) -> None:
        """Lets ``text`` be looked at next."""
        if len(text) > _BLOCK:
            blocks = [text[at : at + _BLOCK] for at in range(0, len(text), _BLOCK)]
            self._ahead += reversed(blocks)
        elif text:
            self._ahead.append(text)

    def _taken(self) -> Sequence[Event]:
        events, self._events = self._events, []
        return events

    def _run(self) -> None:
        while self._ahead:
            text = self._ahead.pop()
            if self._state == TEXT:
                self._seek(text)
            elif self._scanner is not None:
                self._read_arguments(self._scanner, text)
            elif self._object is not None:
                self._read_object(self._object, text)
            else:
                self._match(text)

    def _enter(self, state: str) -> None:
        self._state = state
        self._scanner = JsonScanner() if state == ARGUMENTS else None
        self._object = None
        if state in (ANY_CALL, KNOWN_CALL):
            self._object = CallObject(self._names if state == KNOWN_CALL else None)

    def _seek(self, text: str) -> None:
        if self._finder is None:
            self._events += self._content.feed(text)
            return
        before, marker, rest = self._finder.feed(text)
        self._events += self._content.feed(before)
        if marker is not None:
            self._marker = marker
            self._enter(self.grammar.openers[marker])
            self._push(rest)

    def _match(self, text: str) -> None:
        here, self._here = self._here + text, ""
        shapes = self.grammar.shapes(self._state)
        for shape, then in shapes:
            found = shape.match(here)
            if found is not None:
                self._follow(found, then)
                self._push(here[found.end() :])
                return
        if any(shape.may_grow(here) for shape, _ in shapes):
            self._here = here
        else:
            self._give_back(here)

    def _follow(self, found: Match[str], then: str) -> None:
        if then == ARGUMENTS:
            self._begin(self._open(found))
        elif then in _CALLS or then in self.grammar.before:
            self._held += found[0]
        self._enter(then)

    def _begin(self, call: ToolCall) -> None:
        self._content.call()
        self._events.append(call)
        self._marker = self._held = ""

    def _read_arguments(self, scanner: JsonScanner, text: str) -> None:
        shown, end = scanner.feed(text)
        self._events += self._calls.arguments(shown)
        if scanner.done or scanner.wrong:
            self._leave(text[end:], well=scanner.done)

    def _read_object(self, call: CallObject, text: str) -> None:
        begun = call.begun
        shown, end = call.feed(text)
        if call.begun and not begun:
            self._begin(self._calls.open(call.name))
        self._events += self._calls.arguments(shown)
        if not call.begun and call.wrong:
            self._give_back(text[end:])
        elif call.done or call.wrong:
            self._leave(text[end:], well=call.done)
        else:
            self._push(text[end:])

    def _leave(self, rest: str, *, well: bool) -> None:
        """A call that has begun has ended, or gone wrong."""
        state = after(self._state)
        self._enter(state if well and state in self.grammar.after else TEXT)
        self._push(rest)

    def _give_back(self, rest: str) -> None:
        """No call comes of what was held back: its marker is content, and what is after that may
        be more content or the next marker.
        """
        inside = "" if self._object is None else "".join(self._object.held)
        text = self._held + self._here + inside + rest
        self._events += self._content.feed(self._marker)
        self._marker = self._held = self._here = ""
        self._enter(TEXT)
        self._push(text)
