"""A Python literal to JSON text, in pieces.

Strings, numbers, True, False, None, lists, tuples and dicts, and JSON's own true, false and null.
Nothing is evaluated and nothing recurses (CVE-2025-9141): a number's digits are copied, and more
than 512 containers in each other are no literal.
"""

import re
from typing import Final, Literal, cast

from splitserve.frontend.derender.parsers.base import JSONValue
from splitserve.frontend.derender.parsers.checkpoint import as_one_of, as_text
from splitserve.frontend.derender.parsers.python_groups import Groups
from splitserve.frontend.derender.parsers.python_strings import PythonString

Verdict = Literal["more", "done", "wrong"]
"""More may come, the literal is over, or what comes next is none."""

_Mode = Literal["value", "first", "next", "string", "after_string", "after"]
_MODES: Final = frozenset(("value", "first", "next", "string", "after_string", "after"))

_DEEPEST: Final = 512
_LONGEST_WORD: Final = 400
_SPACES: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"[-+.\w]*")
_NUMBER: Final = re.compile(r"([-+]?)(0+|[1-9]\d*|(?=\.\d))(\.\d*)?([eE][-+]?\d+)?", re.ASCII)
_NAMES: Final = {
    "True": "true",
    "False": "false",
    "None": "null",
    "true": "true",
    "false": "false",
    "null": "null",
}

# A frame of the stack is what is open: a list, a group or tuple, a tuple for certain, a dict
# before and after its colon.
_LIST, _GROUP, _TUPLE, _KEY, _VALUE = "[(t{:"
_OPENERS: Final = frozenset("[({")
_CLOSERS: Final = {_LIST: "]", _GROUP: ")", _TUPLE: ")", _KEY: "}", _VALUE: "}"}
_JSON_CLOSERS: Final = {_LIST: "]", _TUPLE: "]", _KEY: "}", _VALUE: "}"}


class LiteralWriter:
    """One literal after another; ``begin`` starts each.

    A literal is over where a character follows that is none of its own: spaces after it belong
    to it.
    """

    __slots__ = ("_groups", "_mode", "_stack", "_string", "_word")

    def __init__(self) -> None:
        self._string = PythonString("'", raw=False)
        self._groups = Groups()
        self.begin()

    def begin(self) -> None:
        """The next literal."""
        self._mode: _Mode = "value"
        self._stack = ""
        self._word = ""

    def feed(self, text: str) -> tuple[str, str, Verdict]:
        """``(JSON text, text from the first character that is not the literal's, verdict)``."""
        pending, self._word = self._word + text, ""
        place = 0
        verdict: Verdict = "more"
        while verdict == "more" and place < len(pending):
            before = place
            place, verdict = self._step(pending, place)
            self._groups.spend(place - before - len(self._word))
        written = self._groups.give_up() if verdict == "wrong" else self._groups.take()
        return written, pending[place:], verdict

    def finish(self) -> str:
        """The JSON text that is still due when the answer ends here."""
        word, self._word = self._word, ""
        if scalar := _scalar(word):
            self._element(scalar)
        if self._mode == "after_string":
            self._groups.add('"')
        return self._groups.give_up()

    def state(self) -> JSONValue:
        """A JSON value for ``restore``."""
        string = self._string.state() if self._mode == "string" else None
        return [self._mode, self._stack, self._word, string, self._groups.state()]

    def restore(self, state: JSONValue) -> None:
        """Goes on from ``state``. Raises ValueError or TypeError for one that is none."""
        mode, stack, word, string, groups = state
        self._mode = cast(_Mode, as_one_of(mode, _MODES))
        self._stack, self._word = as_text(stack), as_text(word)
        if not _CLOSERS.keys() >= set(self._stack) or len(self._stack) > _DEEPEST:
            raise ValueError("this is no state of a literal")
        if self._mode == "string":
            self._string.restore(string)
        self._groups.restore(groups)

    def _step(self, text: str, place: int) -> tuple[int, Verdict]:
        """One token further."""
        if self._mode == "string":
            return self._more_string(text, place)
        spaces = _SPACES.match(text, place)
        if spaces is not None and spaces.end() > place:
            return spaces.end(), "more"
        if self._groups.left <= 0:
            return place, "wrong"
        if self._mode in ("after", "after_string"):
            return self._after(text, place)
        return self._begin_value(text, place)

    def _begin_value(self, text: str, place: int) -> tuple[int, Verdict]:
        char, top = text[place], self._stack[-1:]
        if char in "'\"":
            self._begin_string(char, raw=False)
            return place + 1, "more"
        if char in _OPENERS and top != _KEY and len(self._stack) < _DEEPEST:
            self._open(char)
            return place + 1, "more"
        if self._mode != "value" and char == _CLOSERS[top]:
            self._close()
            return place + 1, "more"
        return self._begin_word(text, place)

    def _begin_word(self, text: str, place: int) -> tuple[int, Verdict]:
        """A number or a name, which may also be a string's prefix."""
        found = _WORD.match(text, place)
        end = place if found is None else found.end()
        word = text[place:end]
        if not word or len(word) > _LONGEST_WORD:
            return place, "wrong"
        if end == len(text):
            self._word = word
            return end, "more"
        if word in ("r", "R") and text[end] in "'\"":
            self._begin_string(text[end], raw=True)
            return end + 1, "more"
        scalar = _scalar(word)
        if scalar is None:
            return place, "wrong"
        self._element(scalar)
        return end, "more"

    def _after(self, text: str, place: int) -> tuple[int, Verdict]:
        """What follows a value: a comma, a colon, its container's end."""
        char, top = text[place], self._stack[-1:]
        if self._mode == "after_string":
            if char in "'\"":
                # Two strings in a row are one.
                self._begin_string(char, raw=False, joined=True)
                return place + 1, "more"
            self._groups.add('"')
            self._mode = "after"
        if not top:
            return place, "done"
        if char == ":" and top == _KEY:
            self._groups.add(": ")
            self._turn(_VALUE, "value")
        elif char == "," and top != _KEY:
            if top == _GROUP:
                self._groups.decide("[")
            self._turn({_GROUP: _TUPLE, _VALUE: _KEY}.get(top, top), "next")
        elif char == _CLOSERS[top] and top != _KEY:
            self._close()
        else:
            return place, "wrong"
        return place + 1, "more"

    def _turn(self, top: str, mode: _Mode) -> None:
        self._stack = self._stack[:-1] + top
        self._mode = mode

    def _open(self, char: str) -> None:
        self._separate()
        if char == _GROUP:
            self._groups.begin()
        else:
            self._groups.add(char)
        self._stack += char
        self._mode = "first"

    def _close(self) -> None:
        top = self._stack[-1]
        if top == _GROUP:
            # () is a tuple, (value) is the value.
            self._groups.decide("[]" if self._mode == "first" else "")
        else:
            self._groups.add(_JSON_CLOSERS[top])
        self._stack = self._stack[:-1]
        self._mode = "after"

    def _element(self, scalar: str) -> None:
        self._separate()
        self._groups.add(f'"{scalar}"' if self._stack[-1:] == _KEY else scalar)
        self._mode = "after"

    def _begin_string(self, quote: str, *, raw: bool, joined: bool = False) -> None:
        if not joined:
            self._separate()
            self._groups.add('"')
        self._string = PythonString(quote, raw=raw)
        self._mode = "string"

    def _more_string(self, text: str, place: int) -> tuple[int, Verdict]:
        if self._groups.waiting:
            if self._groups.left <= 0:
                return place, "wrong"
            text = text[: place + self._groups.left]
        piece, place, ended = self._string.feed(text, place)
        self._groups.add(piece)
        if ended:
            self._mode = "after_string"
        return place, "more"

    def _separate(self) -> None:
        if self._mode == "next":
            self._groups.add(", ")


def _scalar(word: str) -> str | None:
    """The JSON text of a name or number; None for what is neither."""
    if word in _NAMES:
        return _NAMES[word]
    found = _NUMBER.fullmatch(word)
    if found is None:
        return None
    sign, whole, fraction, exponent = found.groups("")
    sign = "" if sign == "+" else sign
    whole = whole if whole.strip("0") else "0"
    fraction = ".0" if fraction == "." else fraction
    return f"{sign}{whole}{fraction}{exponent}"
