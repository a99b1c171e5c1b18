"""``[f(a=1), g(b="x")]``: a list of Python calls as the whole answer.

Formats: Llama 3.2 and 4 (Meta's prompt format documents), ToolACE and others. Llama 4 may put the
list between ``<|python_start|>`` and ``<|python_end|>``.
"""

import re
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, NamedTuple, cast

from splitserve.frontend.derender.events import Event, TextDelta
from splitserve.frontend.derender.parsers.base import CallIds, JSONValue, Quiet, ToolSpec
from splitserve.frontend.derender.parsers.checkpoint import as_flag, as_one_of, as_text
from splitserve.frontend.derender.parsers.content import any_prose
from splitserve.frontend.derender.parsers.pieces import pieces
from splitserve.frontend.derender.parsers.python_literals import LiteralWriter
from splitserve.frontend.derender.parsers.python_strings import in_json
from splitserve.frontend.derender.parsers.writer import AnswerWriter

_START: Final = "<|python_start|>"
_END: Final = "<|python_end|>"
_LONGEST: Final = 512
"""Characters that one step may hold back."""


class _Step(NamedTuple):
    """What comes next: a whole one, and the begin of one."""

    whole: re.Pattern[str]
    begun: re.Pattern[str]


def _step(whole: str, begun: str) -> _Step:
    return _Step(re.compile(rf"\s*+(?:{whole})", re.DOTALL), re.compile(rf"\s*+(?:{begun})"))


def _prefixes(marker: str) -> str:
    """A pattern of all begins of ``marker``."""
    pattern = ""
    for char in reversed(marker):
        pattern = f"(?:{re.escape(char)}{pattern})?"
    return pattern


_State = Literal[
    "open", "name", "first", "closed", "value", "after", "key", "between", "end", "content"
]
_KEY: Final = _step(r"([^\W\d]\w*+)\s*+=(?!=)(?=.)|\)", r"(?:[^\W\d]\w*+\s*+=?)?")
_SEPARATOR: Final = _step(r"([,\]])", "")
_STEPS: Final[dict[_State, _Step]] = {
    "open": _step(r"\[", ""),
    "name": _step(r"([\w.\-]++)\s*+\(|\]", r"(?:[\w.\-]++\s*+)?"),
    "first": _KEY,
    "closed": _SEPARATOR,
    "after": _step(r"([,)])", ""),
    "key": _KEY,
    "between": _SEPARATOR,
    "end": _step(r"\Z(?!)", r"\Z(?!)"),
}
_MARKED: Final[dict[_State, _Step]] = {
    **_STEPS,
    "open": _step(
        rf"(?:{re.escape(_START)}\s*+)?\[",
        rf"(?:{re.escape(_START)}\s*+|{_prefixes(_START)})",
    ),
    "end": _step(re.escape(_END), _prefixes(_END)),
}
_STATES: Final = frozenset((*_STEPS, "value", "content"))


class Pythonic:
    """Calls of ``tools`` only: text that begins with a bracket need be no call.

    Until a call's first keyword or closing parenthesis all of it is held back, and is content if it
    turns out to be something else. Values may be what LiteralWriter reads. Keywords may be words
    that Python reserves.
    """

    markers: ClassVar[tuple[str, ...]] = ()
    _steps: ClassVar[dict[_State, _Step]] = _STEPS

    def __init__(self, tools: Sequence[ToolSpec], call_ids: CallIds) -> None:
        self._names = frozenset(tool.name for tool in tools)
        self._writer = AnswerWriter(call_ids)
        self._literal = LiteralWriter()
        self._state: _State = "open"
        # A call's text before it is certain: what was read of it, and what is held back.
        self._read = ""
        self._held = ""
        self._name = ""
        self._bare = True

    def feed(self, text: str) -> Sequence[Event]:
        for piece in pieces(text):
            while piece:
                piece = self._advance(piece)
        return self._writer.take()

    def finish(self) -> Sequence[Event]:
        if self._state == "value":
            self._writer.arguments(self._literal.finish())
        elif self._state not in ("after", "key"):
            self._writer.content(self._read + self._held)
        return self._writer.finish()

    def quiet(self) -> Quiet | None:
        if self._state == "content" and not self._writer.waits:
            return Quiet(any_prose, TextDelta)
        return None

    def state(self) -> JSONValue:
        return [
            self._state,
            self._read,
            self._held,
            self._name,
            self._bare,
            self._literal.state(),
            self._writer.state(),
        ]

    def restore(self, state: JSONValue) -> None:
        name, read, held, tool, bare, literal, writer = state
        self._state = cast(_State, as_one_of(name, _STATES))
        self._read, self._held, self._name = as_text(read), as_text(held), as_text(tool)
        self._bare = as_flag(bare)
        self._literal.restore(literal)
        self._writer.restore(writer)

    def _advance(self, text: str) -> str:
        """One step further; what is left of ``text``."""
        if self._state == "content":
            self._writer.content(text)
            return ""
        if self._state == "value":
            return self._value(text)
        step = self._steps[self._state]
        pending, self._held = self._held + text, ""
        found = step.whole.match(pending)
        if found is not None and found.end() <= _LONGEST and self._move(found):
            return pending[found.end() :]
        if found is None and self._may_come(step, pending):
            self._held = pending
        else:
            self._give_up(pending)
        return ""

    def _may_come(self, step: _Step, pending: str) -> bool:
        if len(pending) > _LONGEST or step.begun.fullmatch(pending) is None:
            return False
        word = pending.strip()
        if self._state != "name" or not word:
            return True
        if pending[-1].isspace():
            return word in self._names
        return any(name.startswith(word) for name in self._names)

    def _move(self, found: re.Match[str]) -> bool:
        """What the step that is whole leads to; False when it cannot be there."""
        match self._state:
            case "open":
                self._read, self._state = found[0], "name"
            case "name":
                return self._tool(found)
            case "first" if found[1] is None:
                self._read, self._state = self._read + found[0], "closed"
            case "closed":
                self._call()
                self._close()
                self._separate(found)
            case "first":
                self._call()
                self._keyword(found[1])
            case "after" if found[1] == ",":
                self._state = "key"
            case "key" if found[1] is not None:
                self._keyword(found[1])
            case "after" | "key":
                self._close()
                self._state = "between"
            case "between":
                self._separate(found)
            case _:
                self._state = "content"
        return True

    def _tool(self, found: re.Match[str]) -> bool:
        name = found[1]
        if name is None and self._writer.calls:
            # A comma after the last call.
            self._read, self._state = "", "end"
            return True
        if name not in self._names:
            return False
        self._read, self._name, self._state = self._read + found[0], name, "first"
        return True

    def _call(self) -> None:
        self._writer.call(self._name)
        self._read, self._bare = "", True

    def _keyword(self, name: str) -> None:
        self._writer.arguments(f'{"{" if self._bare else ", "}"{in_json(name)}": ')
        self._bare = False
        self._literal.begin()
        self._state = "value"

    def _close(self) -> None:
        self._writer.arguments("{}" if self._bare else "}")

    def _separate(self, found: re.Match[str]) -> None:
        if found[1] == ",":
            self._read, self._state = found[0], "name"
        else:
            self._state = "end"

    def _value(self, text: str) -> str:
        written, rest, verdict = self._literal.feed(text)
        self._writer.arguments(written)
        if verdict == "done":
            self._state = "after"
        elif verdict == "wrong":
            self._give_up(rest)
            return ""
        return rest

    def _give_up(self, rest: str) -> None:
        """No call after all, or no more of one: all that is left is content."""
        self._writer.content(self._read + rest)
        self._read, self._state = "", "content"


class Llama4Pythonic(Pythonic):
    """As Pythonic, between Llama 4's markers where it writes them."""

    markers: ClassVar[tuple[str, ...]] = (_START, _END)
    _steps: ClassVar[dict[_State, _Step]] = _MARKED
