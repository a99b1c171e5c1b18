"""A call written as one JSON object: ``{"name": "f", "arguments": {...}}``.

Read incrementally: the arguments come out while the model writes them, as it writes them.
"""

import json
import re
from collections.abc import Collection
from typing import Final

from splitserve.frontend.derender.parsers.base import JSONValue
from splitserve.frontend.derender.parsers.checkpoint import (
    LONGEST,
    as_flag,
    as_one_of,
)
from splitserve.frontend.derender.parsers.json_scan import JsonScanner, after_space

MOST_HELD: Final = LONGEST
"""Characters of an object that may be read before it is known to be a call; with more it is none.
"""

_ARGUMENTS: Final = frozenset(("arguments", "parameters"))
"""Models that were shown schemas write the schema's word."""
_LABELS: Final = frozenset(("type", "id"))
"""Keys that add nothing to a call."""

# What is expected outside of keys and values, ...
_PUNCTUATION: Final = {
    "open": {"{": "first"},
    "first": {'"': "key", "}": "done"},
    "next": {",": "pair", "}": "done"},
    "pair": {'"': "key"},
    "colon": {":": "value"},
    "value": {},
    "done": {},
    "wrong": {},
}
_OVER: Final = frozenset(("done", "wrong"))
# ... and the texts that are read inside.
_TEXTS: Final = frozenset(("key", "name", "arguments", "encoded", "absent", "other"))

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class CallObject:
    """One call. Whitespace may come before the object.

    ``names`` are the tools that may be called: any other name, and any key that a call does not
    have, is wrong at once. With None any name may come, and other keys are passed over; but
    without arguments they are wrong, lest arguments under another name get lost. Arguments may be
    the object's JSON text in a string, too: that comes out when the string ends.

    ``begun`` once it is certain that this is a call of ``name``: its arguments are an object, or
    there are none. Nothing is taken back then. ``held`` is all that was read before.
    """

    __slots__ = (
        "_early",
        "_key",
        "_names",
        "_pieces",
        "_place",
        "_scanner",
        "_size",
        "_strange",
        "begun",
        "held",
        "name",
    )

    def __init__(self, names: Collection[str] | None) -> None:
        self._names = names
        self._place = "open"
        # What is being read, the text of it, and the last key.
        self._scanner: JsonScanner | None = None
        self._pieces: list[str] = []
        self._key = ""
        # Arguments that came before the name.
        self._early = ""
        # Whether a key came that is none of a call's.
        self._strange = False
        self.begun = False
        self.held: list[str] = []
        self._size = 0
        self.name = ""

    @property
    def done(self) -> bool:
        return self._place == "done"

    @property
    def wrong(self) -> bool:
        return self._place == "wrong"

    def feed(self, text: str) -> tuple[str, int]:
        """Returns the arguments' text that is certain, and the index of the first character that
        was not read: where it ended or went wrong. What is left otherwise is to be fed again.
        """
        if not self.begun:
            text = text[: MOST_HELD - self._size]
        at, given = 0, list[str]()
        while at < len(text) and self._place not in _OVER:
            if self._scanner is not None:
                at = self._read(self._scanner, text, at, given)
            else:
                at = self._punctuate(text, at, given)
        self._hold(text[:at])
        return "".join(given), at

    def inside(self, text: str) -> str | None:
        """Reads ``text`` if the arguments go on beyond it, and returns what comes out; None, with
        nothing read, where ``feed`` has more to do."""
        scanner = self._scanner
        if scanner is None or not self.begun or self._place != "arguments":
            return None
        return scanner.inside(text)

    @property
    def in_string(self) -> bool:
        """Whether a string inside of arguments is being read that come out as they are."""
        reading = self.begun and self._place == "arguments"
        return reading and self._scanner is not None and self._scanner.in_string

    def state(self) -> JSONValue:
        """A JSON value for ``restore``."""
        return [
            self._place,
            None if self._scanner is None else self._scanner.state(),
            "".join(self._pieces),
            self._key,
            self._early,
            self._strange,
            self.begun,
            "".join(self.held),
            self.name,
        ]

    def restore(self, state: JSONValue) -> None:
        """Goes on from ``state``. Raises ValueError or TypeError for one that is none."""
        place, scanner, pieces, key, early, strange, begun, held, name = state
        if (scanner is None) != (place in _PUNCTUATION):
            raise ValueError("something is read inside a key or a value, and only there")
        self._place = as_one_of(place, _PUNCTUATION.keys() | _TEXTS)
        self._scanner = None if scanner is None else JsonScanner()
        if self._scanner is not None:
            self._scanner.restore(scanner)
        self._pieces = [_as_text(pieces)]
        self._key, self._early = _as_text(key), _as_text(early)
        self._strange, self.begun = as_flag(strange), as_flag(begun)
        self.held, self._size = [_as_text(held)], len(held)
        if self._size >= MOST_HELD:
            raise ValueError("this is more than can be held of a call")
        self.name = _as_text(name)

    def _hold(self, text: str) -> None:
        if self.begun:
            self.held = []
            return
        self.held.append(text)
        self._size += len(text)
        if self._size >= MOST_HELD and self._place not in _OVER:
            self._place = "wrong"

    def _punctuate(self, text: str, at: int, given: list[str]) -> int:
        """What is between keys and values. Returns the first index that was not read."""
        at = after_space(text, at)
        if at == len(text):
            return at
        if self._place == "value":
            self._place = self._kind_of_value(text[at])
        else:
            self._place = _PUNCTUATION[self._place].get(text[at], "wrong")
        if self._place in _TEXTS:
            self._scanner, self._pieces = JsonScanner(), []
            return at
        if self._place == "done":
            self._close(given)
        return at if self._place == "wrong" else at + 1

    def _kind_of_value(self, char: str) -> str:
        """What the value is that begins with ``char``."""
        if self.begun:
            return "other"
        if self._key == "name":
            return "name" if char == '"' and not self.name else "wrong"
        if self._key in _ARGUMENTS:
            if self._early:
                return "wrong"
            self.begun = bool(self.name) and char == "{"
            return {"{": "arguments", '"': "encoded", "n": "absent"}.get(char, "wrong")
        if self._key not in _LABELS:
            self._strange = True
        return "wrong" if self._strange and self._names is not None else "other"

    def _read(self, scanner: JsonScanner, text: str, at: int, given: list[str]) -> int:
        """A key or a value. Returns the first index that was not read."""
        shown, at = scanner.feed(text, at)
        if not self.begun:
            self._pieces.append(shown)
        elif self._place == "arguments":
            given.append(shown)
        if scanner.wrong:
            self._place, self._scanner = "wrong", None
        elif scanner.done:
            read, self._scanner = self._place, None
            self._place = "colon" if read == "key" else "next"
            if not self.begun:
                self._keep(read, "".join(self._pieces), given)
        return at

    def _keep(self, read: str, text: str, given: list[str]) -> None:
        """What a key or a value says, while it is not certain that this is a call."""
        match read:
            case "key":
                self._key = json.loads(text)
            case "name":
                self.name = self._allowed(json.loads(text))
                if not self.name:
                    self._place = "wrong"
            case "arguments":
                self._early = text
            case "encoded":
                self._early = _decoded(text)
                if not self._early:
                    self._place = "wrong"
        if self.name and self._early:
            self.begun = True
            given.append(self._early)
            self._early = ""

    def _allowed(self, name: str) -> str:
        """``name``, or nothing when this is not the name of a tool."""
        known = self._names is None or name in self._names
        return name if known and name.isprintable() else ""

    def _close(self, given: list[str]) -> None:
        """The object has ended."""
        if self.begun:
            return
        if not self.name or self._strange:
            self._place = "wrong"
            return
        self.begun = True
        given.append("{}")


def _decoded(text: str) -> str:
    """The JSON object whose text is in a JSON string, or nothing when there is none."""
    inside: str = json.loads(text)
    inside = inside.strip(" \t\n\r")
    scanner = JsonScanner()
    shown, end = scanner.feed(inside)
    whole = scanner.done and end == len(inside) and inside.startswith("{")
    return shown if whole and not _SURROGATE.search(inside) else ""


def _as_text(value: JSONValue) -> str:
    # Raw line breaks come out as escapes, so this may be more than what was held back.
    if not isinstance(value, str):
        raise TypeError("this is not a text")
    return value
