"""Grammars as clients write them, GBNF or Lark, in the Lark dialect of llguidance.

GBNF is llama.cpp's notation (ggml-org/llama.cpp, grammars/README.md): ``root ::= "a" rule*``.
It has no lexer, while the library's takes the longest lexeme that matches, which would lose
answers. So every lexeme made here is one character: slower than words, and exact.
"""

import re
from collections.abc import Iterator
from typing import Final

from splitserve.errors import CallerError
from splitserve.structured.limits import Limits, check_depth, check_text, check_work
from splitserve.structured.regexes import check_repeats

_BRACKETS: Final = re.compile(r"[()]")
_GBNF: Final = re.compile(r"^\s*[\w.-]+\s*::=", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"%(?:json|regex|lark|llguidance)\b")
_NO_OPTIONS: Final = re.compile(r"\A\s*%llguidance\s*\{\s*\}")

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|\#[^\n]*)
    |(?P<rule>[\w.-]+)\s*::=
    |(?P<name>[\w.-]*\w[\w-]*)
    |"(?P<text>(?:\\.|[^"\\\n])*)"
    |\[(?P<set>(?:\\.|[^\]\\\n])*)\]
    |(?P<repeat>[*+?]|\{\s*\d+\s*(?:,\s*\d*\s*)?\})
    |(?P<mark>[()|])
    |(?P<any>\.)
    """,
    re.VERBOSE,
)

_CHARACTER_US: Final = 15
"""What a lexeme costs to build, measured with llguidance 1.9."""

_CHARACTER: Final = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|(.)", re.DOTALL
)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", **{sign: sign for sign in "\\\"'[]-^/"}}


def grammar_rules(text: str, limits: Limits) -> str:
    """Rules with a ``start``. Raises CallerError; what is wrong with Lark, the library says."""
    check_text(text, limits.max_grammar_bytes)
    check_depth(text, _BRACKETS, limits)
    check_repeats(text, limits)
    return _from_gbnf(text, limits) if _GBNF.search(text) else _from_lark(text)


def _from_lark(text: str) -> str:
    text = _NO_OPTIONS.sub("", text)
    directive = _DIRECTIVE.search(text)
    if directive is not None:
        raise CallerError(f"holds {directive[0]}, which is not supported here")
    return text


def _from_gbnf(text: str, limits: Limits) -> str:
    names: dict[str, str] = {}
    """Rule names of the client, and ours: theirs may mean something in Lark."""
    defined: set[str] = set()
    lark: list[str] = []
    for kind, value in _tokens(text):
        if kind == "rule":
            if value in defined:
                raise CallerError(f"defines rule '{value[:64]}' twice")
            defined.add(value)
            lark.append(f"\n{_name(names, value)}:")
        elif not defined:
            raise CallerError("must begin with a rule: name ::= ...")
        else:
            lark.append(_name(names, value) if kind == "name" else value)
    check_work(_CHARACTER_US * sum(part.count("/") // 2 for part in lark), limits)
    missing = ({"root"} | names.keys()) - defined
    if missing:
        raise CallerError(f"has no rule named '{min(missing)[:64]}'")
    return " ".join(lark)


def _name(names: dict[str, str], name: str) -> str:
    return names.setdefault(name, "start" if name == "root" else f"r{len(names)}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Kind and, for all but names, the Lark form."""
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            line = text.count("\n", 0, at) + 1
            raise CallerError(f"has a syntax error in line {line}, before {text[at : at + 16]!r}")
        at = found.end()
        kind = found.lastgroup
        if kind == "text":
            yield kind, _literal(found["text"])
        elif kind == "set":
            yield kind, _set(found["set"])
        elif kind == "any":
            yield kind, r"/(.|\n)/"
        elif kind is not None and kind != "space":
            yield kind, found[kind]


def _literal(body: str) -> str:
    characters = [f"/\\x{{{code:x}}}/" for _, code in _codes(body)]
    return f"({' '.join(characters)})" if characters else '""'


def _set(body: str) -> str:
    negated = body.startswith("^")
    codes = _codes(body.removeprefix("^"))
    inner = "".join("-" if written == "-" else f"\\x{{{code:x}}}" for written, code in codes)
    return f"/[{'^' if negated else ''}{inner}]/"


def _codes(body: str) -> Iterator[tuple[str, int]]:
    """Each character as it is written, and its code point."""
    for found in _CHARACTER.finditer(body):
        digits = found[1] or found[2] or found[3]
        if digits:
            yield found[0], int(digits, 16)
        elif found[4] is not None:
            if found[4] not in _ESCAPED:
                raise CallerError(f"has an unknown escape \\{found[4]}")
            yield found[0], ord(_ESCAPED[found[4]])
        else:
            yield found[0], ord(found[5])
