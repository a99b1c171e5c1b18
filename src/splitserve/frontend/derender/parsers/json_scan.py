"""Follows JSON character by character and knows where a value ends.

The grammar is RFC 8259's, with one thing more: models write raw line breaks and tabs into strings.
They are let through as escapes, so that what comes out can be read by any JSON reader.
"""

import re
from collections.abc import Callable
from typing import Final, cast

from splitserve.frontend.derender.parsers.base import JSONValue
from splitserve.frontend.derender.parsers.checkpoint import as_one_of

DEEPEST: Final = 512
"""Objects and lists inside one another; a deeper value is wrong. Readers recurse, this does not."""

_DONE: Final = "done"
_WRONG: Final = "wrong"
_OVER: Final = frozenset((_DONE, _WRONG))

# Where a value may stand.
_START: Final = "start"
_VALUE: Final = "value"
_FIRST_ITEM: Final = "first item"
_NEXT_ITEM: Final = "next item"
_FIRST_PAIR: Final = "first pair"
_NEXT_PAIR: Final = "next pair"
_KEY: Final = "key"
_COLON: Final = "colon"
_STRING: Final = "string"
_KEY_STRING: Final = "key string"
_STRINGS: Final = frozenset((_STRING, _KEY_STRING))

# What a character does besides leading to another place.
_OBJECT: Final = "{"
_LIST: Final = "["
_CLOSE: Final = "close"
_END: Final = "end"

_FIRST: Final = {_OBJECT: _FIRST_PAIR, _LIST: _FIRST_ITEM}
_AFTER: Final = {"{": _NEXT_PAIR, "[": _NEXT_ITEM, "": _DONE}
"""The place after a value, by the innermost brace that is open."""

_ENDED_NUMBERS: Final = frozenset(("0", "integer", "fraction", "exponent"))
"""Places in a number where it may end: only the character after it says that it does."""


def _each(chars: str, then: str) -> dict[str, str]:
    return dict.fromkeys(chars, then)


def _in_string(place: str, after: str) -> dict[str, dict[str, str]]:
    escape, hexes = f"{place} escape", [f"{place} hex {left}" for left in range(4)]
    digits = "0123456789abcdefABCDEF"
    return {
        place: {'"': after, "\\": escape},
        escape: {**_each('"\\/bfnrt', place), "u": hexes[3]},
        **{hexes[left]: _each(digits, hexes[left - 1]) for left in (3, 2, 1)},
        hexes[0]: _each(digits, place),
    }


_DIGITS: Final = "0123456789"
_ANY_VALUE: Final = {
    '"': _STRING,
    "{": _OBJECT,
    "[": _LIST,
    "-": "-",
    "0": "0",
    **_each("123456789", "integer"),
    "t": "rue",
    "f": "alse",
    "n": "ull",
}
_NUMBERS: Final = {
    "-": {"0": "0", **_each("123456789", "integer")},
    "0": {".": ".", **_each("eE", "E")},
    "integer": {**_each(_DIGITS, "integer"), ".": ".", **_each("eE", "E")},
    ".": _each(_DIGITS, "fraction"),
    "fraction": {**_each(_DIGITS, "fraction"), **_each("eE", "E")},
    "E": {**_each("+-", "sign"), **_each(_DIGITS, "exponent")},
    "sign": _each(_DIGITS, "exponent"),
    "exponent": _each(_DIGITS, "exponent"),
}
# A word's place is what is left of it.
_WORDS: Final = {
    word[at:]: {word[at]: word[at + 1 :] or _END}
    for word in ("true", "false", "null")
    for at in range(1, len(word))
}
_TABLE: Final[dict[str, dict[str, str]]] = {
    _START: _ANY_VALUE,
    _VALUE: _ANY_VALUE,
    _FIRST_ITEM: {**_ANY_VALUE, "]": _CLOSE},
    _NEXT_ITEM: {",": _VALUE, "]": _CLOSE},
    _FIRST_PAIR: {'"': _KEY_STRING, "}": _CLOSE},
    _NEXT_PAIR: {",": _KEY, "}": _CLOSE},
    _KEY: {'"': _KEY_STRING},
    _COLON: {":": _VALUE},
    **_in_string(_STRING, _END),
    **_in_string(_KEY_STRING, _COLON),
    **_NUMBERS,
    **_WORDS,
}

_SPACE: Final = r"[ \t\n\r]*+"
_PLAIN: Final = r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
_PLAIN_OR_RAW: Final = _PLAIN.replace(r"\x00-\x1f", "")
_SCALAR: Final = (
    rf'"{_PLAIN}"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?=[ \t\n\r,\]}}])'
    r"|true|false|null"
)


def _listed(item: str) -> str:
    return rf"{_SPACE}(?:{item}{_SPACE}(?:,{_SPACE}{item}{_SPACE})*+)?"


def _or_holding(value: str) -> str:
    """``value``, or an object or a list of such."""
    item = f"(?>{value})"
    pair = rf'"{_PLAIN}"{_SPACE}:{_SPACE}{item}'
    return rf"{value}|\[{_listed(item)}\]|\{{{_listed(pair)}\}}"


_WHOLE: Final = f"(?>{_or_holding(_or_holding(_SCALAR))})"
_Run = Callable[[str, int], re.Match[str]]


def _run(pattern: str) -> _Run:
    """``pattern`` matches everywhere, if only nothing."""
    return cast(_Run, re.compile(pattern).match)


# What may be skipped in one go because it leads back to the same place: whitespace, the plain
# characters of a string, whole pairs and items.
_RUNS: Final[dict[str, _Run]] = {
    _VALUE: _run(_SPACE),
    _FIRST_ITEM: _run(_SPACE),
    _NEXT_ITEM: _run(rf"(?:{_SPACE},{_SPACE}{_WHOLE})*+{_SPACE}"),
    _FIRST_PAIR: _run(_SPACE),
    _NEXT_PAIR: _run(
        rf'(?:{_SPACE},{_SPACE}"{_PLAIN}"{_SPACE}:{_SPACE}{_WHOLE})*+{_SPACE}',
    ),
    _KEY: _run(_SPACE),
    _COLON: _run(_SPACE),
    _STRING: _run(_PLAIN_OR_RAW),
    _KEY_STRING: _run(_PLAIN_OR_RAW),
    **dict.fromkeys(("integer", "fraction", "exponent"), _run("[0-9]*+")),
}

NOT_PLAIN: Final = r"\"\\\x00-\x1f"
"""In a character class: what does not stand for itself in a JSON string."""

string_run: Final = re.compile(r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])++').fullmatch
"""Matches text that stays within a JSON string, character for character."""

_RAW: Final = re.compile(r"[\x00-\x1f]")
_ESCAPES: Final = {
    **{code: f"\\u{code:04x}" for code in range(0x20)},
    **str.maketrans({"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}),
}


def after_space(text: str, at: int) -> int:
    """The index of the first character of ``text`` from ``at`` on that is no JSON whitespace."""
    return _RUNS[_VALUE](text, at).end()


class JsonScanner:
    """Reads one value, which begins with the first character that is fed.

    ``done`` when the value has ended, ``wrong`` when what was fed cannot be the begin of a value.
    A number ends with the first character that is no part of it.
    """

    __slots__ = ("_place", "_stack")

    def __init__(self) -> None:
        self._place = _START
        # Braces and brackets that are open, outermost first.
        self._stack = ""

    @property
    def done(self) -> bool:
        return self._place == _DONE

    @property
    def wrong(self) -> bool:
        return self._place == _WRONG

    @property
    def in_string(self) -> bool:
        """Whether plain characters and whole escapes (``string_run``) change nothing here."""
        return self._place == _STRING

    def inside(self, text: str) -> str | None:
        """Reads ``text`` if the value goes on beyond it, and returns what ``feed`` would; None,
        with nothing read, where it does not."""
        place, stack = self._place, self._stack
        shown, _ = self.feed(text)
        if self._place in _OVER:
            self._place, self._stack = place, stack
            return None
        return shown

    def feed(self, text: str, start: int = 0) -> tuple[str, int]:
        """Reads ``text`` from ``start`` on.

        Returns the value's text in it, and the index of the first character that is no part of the
        value: ``len(text)`` while there may be more of it.
        """
        place, stack = self._place, self._stack
        at = cut = start
        shown: list[str] = []
        while at < len(text) and place not in _OVER:
            run = _RUNS.get(place)
            if run is not None:
                begin, at = at, run(text, at).end()
                if place in _STRINGS and _RAW.search(text, begin, at):
                    shown += (text[cut:begin], text[begin:at].translate(_ESCAPES))
                    cut = at
                if at == len(text):
                    break
            then = _TABLE[place].get(text[at])
            if then is None:
                # Only the character after a number says that it has ended, and is none of it.
                place = _AFTER[stack[-1:]] if place in _ENDED_NUMBERS else _WRONG
                continue
            at += 1
            if then == _END:
                place = _AFTER[stack[-1:]]
            elif then == _CLOSE:
                stack = stack[:-1]
                place = _AFTER[stack[-1:]]
            elif then in _FIRST:
                stack += then
                place = _FIRST[then]
                if len(stack) > DEEPEST:
                    at, stack, place = at - 1, "", _WRONG
            else:
                place = then
        self._place, self._stack = place, stack
        rest = text[cut:at]
        return "".join((*shown, rest)) if shown else rest, at

    def state(self) -> JSONValue:
        """A JSON value for ``restore``."""
        return [self._place, self._stack]

    def restore(self, state: JSONValue) -> None:
        """Goes on from ``state``. Raises ValueError or TypeError for one that is none."""
        place, stack = state
        self._place = as_one_of(place, _TABLE.keys() | _OVER)
        if not isinstance(stack, str) or len(stack) > DEEPEST or not set(stack) <= {"{", "["}:
            raise ValueError("these are not the open braces of a JSON value")
        self._stack = stack
