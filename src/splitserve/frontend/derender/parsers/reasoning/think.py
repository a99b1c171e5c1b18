"""``<think>...</think>`` before the answer: DeepSeek-R1, Qwen3, GLM-4.5, Kimi K2 and many more.

Format: the chat templates of these models; the template may write ``<think>`` itself, so that an
answer begins inside the block (vllm#45687), and some models then repeat it.
"""

from collections.abc import Sequence
from typing import ClassVar, Final, Literal, cast

from splitserve.frontend.derender.events import Event, ReasoningDelta, TextDelta
from splitserve.frontend.derender.parsers.base import JSONValue, Quiet, Thinking, anything
from splitserve.frontend.derender.parsers.checkpoint import as_one_of, as_text, hold
from splitserve.frontend.derender.parsers.marks import MarkFinder

_MOST_SPACES: Final = 64
"""Whitespace characters that may stand before a block."""

_State = Literal["open", "start", "reasoning", "content"]
_STATES: Final = frozenset(("open", "start", "reasoning", "content"))


class ThinkTags:
    """One block of reasoning, at the answer's begin. What is after its end is content as it
    stands, markers included (vllm#53924); reasoning that is never closed stays reasoning.

    Whitespace before a block is dropped, up to 64 characters of it; more begins no block.
    """

    begin: ClassVar[str] = "<think>"
    end: ClassVar[str] = "</think>"
    markers: ClassVar[tuple[str, ...]] = ("<think>", "</think>")

    def __init__(self, thinking: Thinking) -> None:
        self._state: _State = "content" if thinking == "closed" else thinking
        self._head = ""
        self._end = MarkFinder((self.end,))
        self._thoughts = self._end.run()

    def feed(self, text: str) -> Sequence[Event]:
        if self._state == "content":
            return (TextDelta(text),) if text else ()
        if self._state == "reasoning":
            return self._reason(text)
        return self._open(text)

    def finish(self) -> Sequence[Event]:
        if self._state in ("content", "reasoning"):
            return _reasoning(self._end.finish()[0])
        head, self._head = self._head, ""
        return _reasoning(head) if self._state == "open" else _content(head)

    def quiet(self) -> Quiet | None:
        if self._state == "content":
            return Quiet(anything, TextDelta)
        if self._state == "reasoning" and not self._end.held:
            return Quiet(self._thoughts, ReasoningDelta)
        return None

    def state(self) -> JSONValue:
        return [self._state, self._head, self._end.held]

    def restore(self, state: JSONValue) -> None:
        name, head, held = state
        self._state = cast(_State, as_one_of(name, _STATES))
        self._head = as_text(head)
        hold(self._end, held)

    def _open(self, text: str) -> Sequence[Event]:
        """The answer's first characters, which may be a block's begin."""
        head, self._head = self._head + text, ""
        block = head.lstrip()
        spaces = len(head) - len(block)
        if spaces <= _MOST_SPACES and block.startswith(self.begin):
            self._state = "reasoning"
            return self._reason(block[len(self.begin) :])
        if spaces <= _MOST_SPACES and self.begin.startswith(block):
            self._head = head
            return ()
        if self._state == "open":
            self._state = "reasoning"
            return self._reason(head)
        self._state = "content"
        return _content(head)

    def _reason(self, text: str) -> Sequence[Event]:
        before, end, after = self._end.feed(text)
        if end is None:
            return _reasoning(before)
        self._state = "content"
        return (*_reasoning(before), *_content(after))


def _reasoning(text: str) -> tuple[Event, ...]:
    return (ReasoningDelta(text),) if text else ()


def _content(text: str) -> tuple[Event, ...]:
    return (TextDelta(text),) if text else ()
