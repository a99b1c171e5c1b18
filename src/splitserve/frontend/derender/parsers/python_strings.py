"""A Python string literal to JSON text, in pieces."""

import json
import re
from collections.abc import Mapping
from typing import Final, cast

from splitserve.frontend.derender.parsers.base import JSONValue
from splitserve.frontend.derender.parsers.checkpoint import as_count, as_flag, as_one_of, as_text

_NAMED: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "a": "\a",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",
}
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_OCTAL: Final = frozenset("01234567")
_ESCAPES: Final = {
    "x": (16, _HEX, 2),
    "u": (16, _HEX, 4),
    "U": (16, _HEX, 8),
    **dict.fromkeys("01234567", (8, _OCTAL, 3)),
}
"""What follows a backslash and is a code: ``(base, digits, most digits)``."""
_LAST_CODE: Final = 0x10FFFF
# Text up to a quote, a code or half an escape, by quote.
_RUNS: Final = {
    quote: re.compile(rf"(?:[^{quote}\\]++|\\[^xuU0-7])*+", re.DOTALL) for quote in "'\""
}
_RAW_RUNS: Final = {quote: re.compile(rf"(?:[^{quote}\\]++|\\.)*+", re.DOTALL) for quote in "'\""}
_PAIR: Final = re.compile(r"\\(.)", re.DOTALL)


def in_json(text: str) -> str:
    """``text`` as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class PythonString:
    """What is between the quotes of one literal. Constructed after its first quote.

    Knows '...', "..." and both in threes, raw or not. A raw newline is kept in all of them: models
    write it (vllm#48171). An escape that Python does not know stays as it is written.
    """

    __slots__ = ("_escape", "_quote", "_raw", "_run", "_width")

    def __init__(self, quote: str, *, raw: bool) -> None:
        self._quote = quote
        self._raw = raw
        # How many quotes end it; 0 while a second and third quote may still follow the first.
        self._width = 0
        self._run = 0
        self._escape = ""

    def feed(self, text: str, start: int) -> tuple[str, int, bool]:
        """``(JSON text, where it stopped in text, whether the literal ended there)``."""
        out: list[str] = []
        place, length = start, len(text)
        while place < length:
            char = text[place]
            if self._escape:
                piece, used = self._escaped(char)
                out.append(piece)
                place += used
            elif char == self._quote:
                place += 1
                if self._closes():
                    return "".join(out), place, True
            elif not self._width and self._run:
                return "".join(out), place, True
            else:
                out.append(self._inner_quotes())
                run = cast(re.Match[str], self._runs[self._quote].match(text, place))[0]
                out.append(in_json(run if self._raw else _PAIR.sub(_named, run)))
                self._escape = "" if run else char
                place += len(run) or 1
        return "".join(out), place, False

    def state(self) -> JSONValue:
        """A JSON value for ``restore``."""
        return [self._quote, self._raw, self._width, self._run, self._escape]

    def restore(self, state: JSONValue) -> None:
        """Goes on from ``state``. Raises ValueError for one that is none."""
        quote, raw, width, run, escape = state
        self._quote, self._raw = as_one_of(quote, _RUNS), as_flag(raw)
        self._width, self._run = as_count(width), as_count(run)
        self._escape = as_text(escape)
        if self._width not in (0, 1, 3) or self._run > 2 or self._escape[:1] not in ("", "\\"):
            raise ValueError("this is no state of a string")

    @property
    def _runs(self) -> Mapping[str, re.Pattern[str]]:
        return _RAW_RUNS if self._raw else _RUNS

    def _closes(self) -> bool:
        """One more quote: whether it ends the literal."""
        self._run += 1
        if self._width:
            return self._run == self._width
        if self._run == 2:
            self._width, self._run = 3, 0
        return False

    def _inner_quotes(self) -> str:
        """Quotes that turned out not to end it."""
        self._width = self._width or 1
        quotes, self._run = self._quote * self._run, 0
        return in_json(quotes)

    def _escaped(self, char: str) -> tuple[str, int]:
        """One more character of an escape: ``(JSON text, characters used)``."""
        begun, self._escape = self._escape, ""
        if self._raw:
            return in_json(begun + char), 1
        if begun == "\\":
            if char in _ESCAPES:
                self._escape = begun + char
                return "", 1
            return in_json(_PAIR.sub(_named, begun + char)), 1
        base, known, most = _ESCAPES[begun[1]]
        digits = begun[1:] if base == 8 else begun[2:]
        if char not in known:
            return (_code(begun, digits, base) if base == 8 else in_json(begun)), 0
        if len(digits) + 1 < most:
            self._escape = begun + char
            return "", 1
        return _code(begun + char, digits + char, base), 1


def _named(pair: re.Match[str]) -> str:
    """What a backslash and the character after it stand for."""
    return _NAMED.get(pair[1], pair[0])


def _code(begun: str, digits: str, base: int) -> str:
    """The character with this code; ``begun`` as it stands when there is none.

    Half a surrogate pair stays an escape: two of them in a row are one character to JSON.
    """
    code = int(digits, base)
    if code > _LAST_CODE:
        return in_json(begun)
    return json.dumps(chr(code), ensure_ascii=0xD800 <= code <= 0xDFFF)[1:-1]
