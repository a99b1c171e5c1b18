"""Tool calls whose parameters are written as tags.

An answer of such a format is read as::

    content -> head -> body <-> value
       ^        |       |
       +--------+       v
       +------------- after

``head`` is what must follow before a call is certain, ``body`` what may stand between its
parameters, ``value`` a parameter's text, and ``after`` what may follow a call within its block. A
tag that cannot come next ends the call; that tag and what follows is content, and read as such.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, cast

from splitserve.frontend.derender.events import Event, TextDelta
from splitserve.frontend.derender.parsers.base import CallIds, JSONValue, Quiet, ToolSpec
from splitserve.frontend.derender.parsers.checkpoint import as_flag, as_one_of, as_text, hold
from splitserve.frontend.derender.parsers.content import SPACE
from splitserve.frontend.derender.parsers.json_scan import NOT_PLAIN
from splitserve.frontend.derender.parsers.marks import MarkFinder
from splitserve.frontend.derender.parsers.pieces import pieces
from splitserve.frontend.derender.parsers.python_strings import in_json
from splitserve.frontend.derender.parsers.typed_args import Kinds, ValueWriter, parameter_kinds
from splitserve.frontend.derender.parsers.writer import AnswerWriter

CONTENT: Final = "content"
HEAD: Final = "head"
BODY: Final = "body"
VALUE: Final = "value"
AFTER: Final = "after"

_LONGEST: Final = 512
"""Characters of a tag and of the text before it."""
_TAG: Final = re.compile(r"([^<>]*+)(<[^<>]*+>?)?")


class Expected(NamedTuple):
    """How the tags begin that may come next. ``text``: other than whitespace may stand before."""

    tags: tuple[str, ...]
    text: bool = False

    def may_become(self, before: str, tag: str) -> bool:
        """Whether one of the tags can still come of ``tag``."""
        if before.strip() and not self.text:
            return False
        return any(
            begin.startswith(tag) or (tag.startswith(begin) and begin[-1] != ">")
            for begin in self.tags
        )


class TagParser(ABC):
    """What these formats share; a format says what its tags are and what each of them means.

    ``blocks`` are the markers that begin a block of calls. ``bare`` is how the tag of a call begins
    that stands in no block; a call of a tool that is not offered needs a block. ``expected`` says
    for each state but content and value what may come next, and ``value_ends`` what ends a value.
    ``newlines``: a line break at a value's begin is markup.
    """

    markers: ClassVar[tuple[str, ...]]
    blocks: ClassVar[tuple[str, ...]]
    bare: ClassVar[str | None] = None
    expected: ClassVar[Mapping[str, Expected]]
    value_ends: ClassVar[tuple[str, ...]]
    newlines: ClassVar[bool] = False

    def __init__(self, tools: Sequence[ToolSpec], call_ids: CallIds) -> None:
        self._tools = tools
        self._names = frozenset(tool.name for tool in tools)
        self._writer = AnswerWriter(call_ids)
        self._value = ValueWriter()
        begins = self.blocks if self.bare is None else (*self.blocks, self.bare)
        self._begins = MarkFinder(begins)
        self._ends = MarkFinder(self.value_ends)
        self._prose = self._begins.run(last=SPACE)
        self._plain = self._ends.run(NOT_PLAIN)
        self._state = CONTENT
        # The marker of the last block that began, nothing for a call that stands in none.
        self._block = ""
        self._held = ""
        self._before = ""
        self._tool = ""
        self._empty = True
        self._fresh = False

    def feed(self, text: str) -> Sequence[Event]:
        for piece in pieces(text):
            while piece:
                piece = self._advance(piece)
        return self._writer.take()

    def finish(self) -> Sequence[Event]:
        if self._state == CONTENT:
            self._writer.content(self._begins.finish()[0])
        elif self._state == VALUE:
            written, rest = self._value.feed(self._ends.finish()[0])
            self._writer.arguments(written + self._value.finish())
            self._writer.content(rest)
        elif self._state == HEAD:
            self._writer.content(self._block + self._held)
        elif self._state == AFTER:
            self._writer.content(self._held)
        return self._writer.finish()

    def quiet(self) -> Quiet | None:
        if self._state == CONTENT and not (self._begins.held or self._writer.waits):
            return Quiet(self._prose, TextDelta)
        if self._state == VALUE and self._value.flows and not (self._fresh or self._ends.held):
            return Quiet(self._plain, self._writer.more)
        return None

    def state(self) -> JSONValue:
        return [
            self._state,
            self._block,
            self._held,
            self._tool,
            self._empty,
            self._fresh,
            self._begins.held,
            self._ends.held,
            self._value.state(),
            self._writer.state(),
        ]

    def restore(self, state: JSONValue) -> None:
        name, block, held, tool, empty, fresh, begins, ends, value, writer = state
        self._state = as_one_of(name, (CONTENT, VALUE, *self.expected))
        self._block = as_one_of(block, ("", *self.blocks))
        self._held, self._tool = as_text(held), as_text(tool)
        self._empty, self._fresh = as_flag(empty), as_flag(fresh)
        hold(self._begins, begins)
        hold(self._ends, ends)
        self._value.restore(value)
        self._writer.restore(writer)

    @abstractmethod
    def _read(self, tag: str) -> bool:
        """Does what ``tag`` says, after the text ``_before``; False when it cannot be there. Sets
        the next state where the methods below do not."""

    def _open(self, name: str) -> bool:
        """A call of ``name``, next its body; False where there can be none."""
        if not name or not (self._block or name in self._names):
            return False
        self._writer.call(name)
        self._tool, self._empty, self._state = name, True, BODY
        return True

    def _key(self, name: str, kinds: Kinds | None = None) -> bool:
        """A parameter, next its value, of these kinds or those that the schema gives."""
        if not name:
            return False
        self._writer.arguments(f'{"{" if self._empty else ", "}"{in_json(name)}": ')
        if kinds is None:
            kinds = parameter_kinds(self._tools, self._tool, name)
        self._writer.arguments(self._value.begin(kinds))
        self._empty, self._fresh, self._state = False, True, VALUE
        return True

    def _close(self, then: str) -> bool:
        """The call is over, next ``then``."""
        self._writer.arguments("{}" if self._empty else "}")
        self._state = then
        return True

    def _leave(self) -> bool:
        """The block's end, which is also that of a call that is still open."""
        if self._state == BODY:
            return self._close(CONTENT)
        self._state = CONTENT
        return True

    def _advance(self, text: str) -> str:
        """One step further; what is left of ``text``."""
        if self._state == CONTENT:
            return self._content(text)
        if self._state == VALUE:
            return self._more_value(text)
        return self._structure(text)

    def _content(self, text: str) -> str:
        before, begin, after = self._begins.feed(text)
        self._writer.content(before)
        if begin is not None:
            self._block, self._held = (begin, "") if begin in self.blocks else ("", begin)
            self._state = HEAD
        return after

    def _more_value(self, text: str) -> str:
        if self._fresh and self.newlines:
            text = text.removeprefix("\n")
        self._fresh = False
        before, end, after = self._ends.feed(text)
        written, wrong = self._value.feed(before)
        self._writer.arguments(written)
        if wrong:
            held, self._ends.held = self._ends.held, ""
            return self._give_up(f"{wrong}{held}{end or ''}{after}")
        if end is None:
            return ""
        rest = self._value.close()
        if rest is None:
            return self._give_up(end + after)
        self._writer.arguments(rest)
        self._state = BODY
        return after

    def _structure(self, text: str) -> str:
        """Tags that are no parameter's value."""
        pending, self._held = self._held + text, ""
        before, tag = cast(re.Match[str], _TAG.match(pending)).groups("")
        length = len(before) + len(tag)
        if length > _LONGEST or not self.expected[self._state].may_become(before, tag):
            return self._give_up(pending)
        if tag.endswith(">"):
            self._before = before
            return pending[length:] if self._read(tag) else self._give_up(pending)
        if length < len(pending):
            return self._give_up(pending)
        self._held = pending
        return ""

    def _give_up(self, pending: str) -> str:
        """No call, or no more of one: ``pending`` is content, in which calls may begin."""
        if self._state == HEAD:
            # Past its begin, so that the same is not tried again.
            begin, pending = (self._block, pending) if self._block else (pending[0], pending[1:])
            self._writer.content(begin)
        self._state = CONTENT
        return pending
