"""Harmony, the format of OpenAI's gpt-oss: reasoning, content and tool calls as messages.

Format: github.com/openai/harmony, docs/format.md. An answer is a row of messages, of which the
prompt has already begun the first with ``<|start|>assistant``::

    <|channel|>analysis<|message|>I need the weather.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>

openai-harmony, the library for it, is not used: it loads its vocabulary from the network when it
is first needed, and the state of its parser cannot be saved.
"""

import re
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, cast

from splitserve.frontend.derender.events import Event, ReasoningDelta, TextDelta
from splitserve.frontend.derender.parsers.base import CallIds, JSONValue, Quiet, ToolSpec
from splitserve.frontend.derender.parsers.calls import CallWriter
from splitserve.frontend.derender.parsers.checkpoint import as_flag, as_one_of, as_text, hold
from splitserve.frontend.derender.parsers.json_scan import JsonScanner, string_run
from splitserve.frontend.derender.parsers.marks import MarkFinder
from splitserve.frontend.derender.parsers.pieces import pieces

_START: Final = "<|start|>"
_CHANNEL: Final = "<|channel|>"
_CONSTRAIN: Final = "<|constrain|>"
_MESSAGE: Final = "<|message|>"
_ENDS: Final = ("<|end|>", "<|return|>", "<|call|>")

_LONGEST: Final = 512
"""Characters of a header, or of whitespace around arguments."""
_HEADER_END: Final = re.compile(r"<\|(?:message|end|return|call|start)\|>")
_TYPE: Final = r"(?!to=)[\w.\-/]*+\s*+"
_HEADER: Final = re.compile(
    r"(?:<\|start\|>assistant)?\s*+(?:to=(?P<first>[^\s<]++)\s*+)?"
    r"(?:<\|channel\|>\s*+(?P<channel>analysis|commentary|final)(?!\w)\s*+"
    rf"(?:to=(?P<second>[^\s<]++)\s*+)?{_TYPE})?"
    rf"(?:<\|constrain\|>\s*+{_TYPE}(?:to=(?P<third>[^\s<]++)\s*+)?)?"
)
# What may come before the first marker of an answer that begins with a header.
_BEGUN: Final = re.compile(r"\s*+(?:to=[^\s<]*+\s*+|to?)?")

_State = Literal["header", "text", "opening", "arguments", "closing"]
_STATES: Final = frozenset(("header", "text", "opening", "arguments", "closing"))
_KINDS: Final = frozenset(("analysis", "content"))


class Harmony:
    """Both halves at once: what is of channel analysis is reasoning, a message to one of the
    client's functions is a call, any other is content.

    Text outside of messages is content, and so is a message with a header that is none of these; a
    message to a tool that is not the client's is reasoning if the channel says so. The blocks of a
    channel are joined with nothing between them. The last marker may be missing: servers stop at
    it.
    """

    begin: ClassVar[str] = f"{_CHANNEL}analysis{_MESSAGE}"
    end: ClassVar[str] = _ENDS[0]
    markers: ClassVar[tuple[str, ...]] = (_START, _CHANNEL, _CONSTRAIN, _MESSAGE, *_ENDS)

    def __init__(self, tools: Sequence[ToolSpec], call_ids: CallIds) -> None:
        self._names = frozenset(tool.name for tool in tools)
        self._calls = CallWriter(call_ids)
        self._scanner = JsonScanner()
        self._finder = MarkFinder((_START, _CHANNEL, *_ENDS))
        self._words = self._finder.run()
        self._events: list[Event] = []
        self._state: _State = "header"
        # Where text goes, and whether the end of its message is still to come.
        self._kind = "content"
        self._inside = True
        # A call's header, until the call is certain.
        self._header = ""
        self._held = ""
        self._name = ""

    def feed(self, text: str) -> Sequence[Event]:
        for piece in pieces(text):
            while piece:
                piece = self._advance(piece)
        return self._take()

    def finish(self) -> Sequence[Event]:
        if self._state == "text":
            self._show(self._finder.finish()[0])
        elif self._state != "closing" or self._held.strip():
            self._show(self._header + self._held)
        return self._take()

    def quiet(self) -> Quiet | None:
        if self._state == "text" and not self._finder.held:
            return Quiet(self._words, ReasoningDelta if self._kind == "analysis" else TextDelta)
        if self._state == "arguments" and self._scanner.in_string:
            return Quiet(string_run, self._calls.more)
        return None

    def state(self) -> JSONValue:
        return [
            self._state,
            self._kind,
            self._inside,
            self._header,
            self._held,
            self._name,
            self._finder.held,
            self._scanner.state(),
            self._calls.state(),
        ]

    def restore(self, state: JSONValue) -> None:
        name, kind, inside, header, held, tool, found, scanner, calls = state
        self._state = cast(_State, as_one_of(name, _STATES))
        self._kind, self._inside = as_one_of(kind, _KINDS), as_flag(inside)
        self._header, self._held, self._name = as_text(header), as_text(held), as_text(tool)
        hold(self._finder, found)
        self._scanner.restore(scanner)
        self._calls.restore(calls)

    def _advance(self, text: str) -> str:
        """One step further; what is left of ``text``."""
        if self._state == "text":
            return self._text(text)
        if self._state == "arguments":
            return self._arguments(text)
        pending, self._held = self._held + text, ""
        if self._state == "header":
            return self._head(pending)
        return self._open(pending) if self._state == "opening" else self._close(pending)

    def _text(self, text: str) -> str:
        before, marker, after = self._finder.feed(text)
        self._show(before)
        if marker in (_START, _CHANNEL):
            self._held, self._state = marker, "header"
        elif marker is not None and self._inside:
            self._end()
        elif marker is not None:
            self._show(marker)
        return after

    def _head(self, pending: str) -> str:
        """A message's header, of which all that was read is held."""
        own_start = len(_START) if pending.startswith(_START) else 0
        found = _HEADER_END.search(pending, own_start, _LONGEST)
        if found is None and len(pending) <= _LONGEST and _may_begin(pending):
            self._held = pending
            return ""
        if found is None or found[0] != _MESSAGE:
            return self._give_up(pending)
        header = _HEADER.fullmatch(pending[: found.start()])
        if header is None or not self._address(header):
            return self._give_up(pending)
        if self._state == "opening":
            self._header = pending[: found.end()]
        self._inside = True
        return pending[found.end() :]

    def _address(self, header: re.Match[str]) -> bool:
        """What a message is, by its header; False when it is nothing that we know."""
        channel = header["channel"] or "final"
        recipient = header["first"] or header["second"] or header["third"]
        self._name = self._function(recipient) if recipient else ""
        if recipient and not self._name and channel != "analysis":
            return False
        self._kind = "analysis" if channel == "analysis" else "content"
        self._state = "opening" if self._name else "text"
        return True

    def _function(self, recipient: str) -> str:
        """The function that a call is for, or nothing where it is none of the client's."""
        name = recipient.removeprefix("functions.")
        known = bool(self._names) if name != recipient else name in self._names
        return name if known else ""

    def _open(self, pending: str) -> str:
        """A call's arguments should begin: an object, or none at all."""
        begun = pending.lstrip()
        if begun.startswith("{"):
            self._call()
            self._scanner = JsonScanner()
            self._state = "arguments"
            return begun
        if begun.startswith(_ENDS):
            self._call()
            self._events += self._calls.arguments("{}")
            self._state = "closing"
            return begun
        if len(pending) <= _LONGEST and _begins_end(begun):
            self._held = pending
            return ""
        return self._give_up(self._header + pending)

    def _call(self) -> None:
        self._header = ""
        self._events.append(self._calls.open(self._name))

    def _arguments(self, text: str) -> str:
        shown, end = self._scanner.feed(text)
        self._events += self._calls.arguments(shown)
        if self._scanner.wrong:
            self._kind, self._state = "content", "text"
        elif self._scanner.done:
            self._state = "closing"
        return text[end:]

    def _close(self, pending: str) -> str:
        """After a call's arguments."""
        rest = pending.lstrip()
        marker = next((end for end in _ENDS if rest.startswith(end)), None)
        if marker is not None:
            self._end()
            return rest[len(marker) :]
        if len(pending) <= _LONGEST and _begins_end(rest):
            self._held = pending
            return ""
        self._kind, self._state = "content", "text"
        return pending

    def _end(self) -> None:
        """A message is over."""
        self._kind, self._inside, self._state = "content", False, "text"

    def _give_up(self, pending: str) -> str:
        """No message after all: ``pending`` is text like that before it."""
        self._header, self._state = "", "text"
        marker = next((begin for begin in (_START, _CHANNEL) if pending.startswith(begin)), "")
        if marker and self._kind == "content":
            # The end of such a message is then no end of ours.
            self._inside = False
        # Past its begin, so that the same is not tried again.
        self._show(marker)
        return pending[len(marker) :]

    def _show(self, text: str) -> None:
        if text:
            kind = ReasoningDelta if self._kind == "analysis" else TextDelta
            self._events.append(kind(text))

    def _take(self) -> Sequence[Event]:
        events, self._events = self._events, []
        return events


def _may_begin(pending: str) -> bool:
    """Whether ``pending`` can be the begin of a header."""
    place = pending.find("<")
    words, marker = (pending, "") if place < 0 else (pending[:place], pending[place:])
    return _BEGUN.fullmatch(words) is not None and any(
        known.startswith(marker) or marker.startswith(known)
        for known in (_START, _CHANNEL, _CONSTRAIN, _MESSAGE)
    )


def _begins_end(text: str) -> bool:
    """Whether ``text`` may become a marker that ends a message."""
    return any(end.startswith(text) for end in _ENDS)
