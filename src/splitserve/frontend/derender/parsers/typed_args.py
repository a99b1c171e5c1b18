"""Text of a call's parameter to JSON text, by the type that the tool's schema gives it.

Formats that write parameters as tags give values as plain text. A string becomes a JSON string
while it comes (vllm#30439). Anything else is held until it is whole, or known to be a string after
all. Nothing is evaluated and numbers keep their digits (CVE-2025-9141).
"""

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final, Literal, cast

from splitserve.frontend.derender.parsers.base import JSONValue, ToolSpec
from splitserve.frontend.derender.parsers.checkpoint import as_flag, as_one_of, as_text
from splitserve.frontend.derender.parsers.json_scan import JsonScanner
from splitserve.frontend.derender.parsers.python_strings import in_json

Kinds = frozenset[str]
"""JSON Schema's names of types. Empty: the schema says nothing."""

STRING: Final[Kinds] = frozenset(("string",))

_TYPES: Final = ("string", "integer", "number", "boolean", "null", "object", "array")
_ALIASES: Final = {
    **{name: name for name in _TYPES},
    # What clients write that made their schema by hand.
    "str": "string",
    "text": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "tuple": "array",
    "none": "null",
}
_DEEPEST_SCHEMA: Final = 8

_LONGEST_SCALAR: Final = 400
_LONGEST_HELD: Final = 4096
_NUMBER: Final = r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?"
_PATTERNS: Final = {
    "null": re.compile("null|None"),
    "boolean": re.compile("true|false|True|False"),
    "integer": re.compile(r"-?(?:0|[1-9]\d*)(?:\.0+)?", re.ASCII),
    "number": re.compile(_NUMBER, re.ASCII),
    # Where the schema says nothing, only what is JSON is taken for more than a string.
    "": re.compile(f"null|true|false|{_NUMBER}", re.ASCII),
}
_BEGINS: Final = {
    "null": "nN",
    "boolean": "tfTF",
    "integer": "-0123456789",
    "number": "-0123456789",
    "": "ntf-0123456789",
}
_PYTHON: Final = {"None": "null", "True": "true", "False": "false"}

_Mode = Literal["unknown", "string", "scalar", "json"]
_MODES: Final = frozenset(("unknown", "string", "scalar", "json"))


def parameter_kinds(tools: Sequence[ToolSpec], tool: str, parameter: str) -> Kinds:
    """What ``tool`` takes as ``parameter``; nothing known of either is no error."""
    for spec in tools:
        if spec.name == tool:
            properties = spec.parameters.get("properties")
            if isinstance(properties, dict):
                return schema_kinds(properties.get(parameter))
    return frozenset()


def schema_kinds(schema: JSONValue) -> Kinds:
    """The types that a JSON schema lets through, as far as ``type``, ``enum``, ``const`` and the
    alternatives of ``anyOf``, ``oneOf`` and ``allOf`` tell."""
    return frozenset(_kinds(schema, _DEEPEST_SCHEMA))


def _kinds(schema: JSONValue, deepest: int) -> Iterator[str]:
    if not isinstance(schema, dict) or not deepest:
        return
    types = schema.get("type")
    for name in types if isinstance(types, list) else [types]:
        if isinstance(name, str) and name.lower() in _ALIASES:
            yield _ALIASES[name.lower()]
    values = schema.get("enum")
    for value in values if isinstance(values, list) else []:
        yield _kind_of(value)
    if "const" in schema:
        yield _kind_of(schema["const"])
    for word in ("anyOf", "oneOf", "allOf"):
        choices = schema.get(word)
        for choice in choices if isinstance(choices, list) else []:
            yield from _kinds(choice, deepest - 1)


def _kind_of(value: JSONValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


class ValueWriter:
    """One value after another; ``begin`` starts each.

    What does not fit its type becomes a JSON string of the text as it stands. That can no longer be
    done with an object or list of more than 4,096 characters, which is given out as it comes.
    """

    __slots__ = ("_flowing", "_held", "_json", "_kinds", "_mode", "_scanner", "_size")

    def __init__(self) -> None:
        self._scanner = JsonScanner()
        self.begin(STRING)

    @property
    def flows(self) -> bool:
        """Whether it is a string that comes out as it comes."""
        return self._mode == "string"

    def begin(self, kinds: Kinds) -> str:
        """The next value, which may be of ``kinds``. Returns JSON text."""
        self._kinds = kinds
        self._mode: _Mode = "string" if kinds == STRING else "unknown"
        self._held: list[str] = []
        self._json: list[str] = []
        self._size = 0
        self._flowing = False
        return '"' if kinds == STRING else ""

    def feed(self, text: str) -> tuple[str, str]:
        """``(JSON text, what is left of text from where it is no value any more)``."""
        written: list[str] = []
        while text:
            room = self._room()
            piece, text = text[:room], text[room:]
            shown, rest = self._feed(piece)
            written.append(shown)
            if rest:
                return "".join(written), rest + text
        return "".join(written), ""

    def close(self) -> str | None:
        """The value is over: the rest of its JSON text. None when it ended too early."""
        if self._flowing:
            return "" if self._scanner.done else None
        if self._mode == "string":
            return '"'
        if self._mode == "json" and self._scanner.done:
            return "".join(self._json)
        text = "".join(self._held)
        scalar = _scalar(text.strip(), self._kinds) if self._mode == "scalar" else None
        return scalar or f'{self._as_string()}"'

    def finish(self) -> str:
        """The answer ends within the value: the JSON text that is still due."""
        if self._mode == "json":
            return "".join(self._json)
        return "".join(self._held).strip()

    def state(self) -> JSONValue:
        """A JSON value for ``restore``."""
        held, written = "".join(self._held), "".join(self._json)
        return [
            sorted(self._kinds),
            self._mode,
            held,
            written,
            self._flowing,
            self._scanner.state(),
        ]

    def restore(self, state: JSONValue) -> None:
        """Goes on from ``state``. Raises ValueError or TypeError for one that is none."""
        kinds, mode, held, written, flowing, scanner = state
        self._kinds = frozenset(as_one_of(kind, _ALIASES) for kind in kinds)
        self._mode = cast(_Mode, as_one_of(mode, _MODES))
        self._held, self._json = [as_text(held)], [as_text(written)]
        self._size = len(held)
        self._flowing = as_flag(flowing)
        self._scanner.restore(scanner)

    def _room(self) -> int:
        """How much more may be read before something is decided."""
        if self._flowing or self._mode == "string":
            return sys.maxsize
        return (_LONGEST_HELD if self._mode == "json" else _LONGEST_SCALAR) - self._size

    def _feed(self, text: str) -> tuple[str, str]:
        if self._mode == "string":
            return in_json(text), ""
        if self._flowing:
            return self._scan(text)
        self._held.append(text)
        self._size += len(text)
        if self._mode == "unknown":
            text = "".join(self._held).lstrip()
            if text:
                self._mode = self._guess(text[0])
        if self._mode == "json":
            return self._hold_json(text), ""
        if self._mode == "string" or self._size >= _LONGEST_SCALAR:
            return self._as_string(), ""
        return "", ""

    def _guess(self, first: str) -> _Mode:
        """What a value can only be that begins with this character."""
        container = {"{": "object", "[": "array"}.get(first)
        if container is not None and (container in self._kinds or not self._kinds):
            self._scanner = JsonScanner()
            return "json"
        scalar = any(first in _BEGINS.get(kind, "") for kind in self._kinds or ("",))
        return "scalar" if scalar else "string"

    def _hold_json(self, text: str) -> str:
        shown, rest = self._scan(text)
        self._json.append(shown)
        if rest:
            return self._as_string()
        if self._size < _LONGEST_HELD:
            return ""
        self._flowing = True
        written, self._held, self._json = "".join(self._json), [], []
        return written

    def _scan(self, text: str) -> tuple[str, str]:
        """More of an object or list, after which only whitespace may follow."""
        if self._scanner.done:
            return "", text.lstrip()
        shown, end = self._scanner.feed(text)
        return shown, text[end:] if self._scanner.wrong else text[end:].lstrip()

    def _as_string(self) -> str:
        """All that was held, as the begin of a string."""
        text, self._held, self._json = "".join(self._held), [], []
        self._mode = "string"
        return f'"{in_json(text)}'


def _scalar(text: str, kinds: Kinds) -> str | None:
    """The JSON text of a scalar; None when it is none of ``kinds``."""
    for kind in kinds or ("",):
        pattern = _PATTERNS.get(kind)
        if pattern is not None and pattern.fullmatch(text):
            return _PYTHON.get(text, text)
    return None
