"""Regular expressions that also know the beginnings of what they match."""

import re
from typing import Final

MOST_SPACES: Final = 64
SPACES: Final = rf"\s{{0,{MOST_SPACES}}}"
"""Whitespace between markers; more than that is no markup, as text has to be held meanwhile."""

TOOL_NAME: Final = r'(?P<name>[^\s<>{}\[\]"`:]{1,256})'
OBJECT_AHEAD: Final = r"(?=\{)"


def each(literal: str) -> tuple[str, ...]:
    """``literal`` as atoms."""
    return tuple(map(re.escape, literal))


class Shape:
    """A sequence of atoms: each a character, a class of characters that is repeated, or a look
    ahead for a character. The last is a character or a look ahead, so that a match stays as it is
    whatever comes after it.
    """

    __slots__ = ("_begin", "_whole")

    def __init__(self, *atoms: str) -> None:
        self._whole = re.compile("".join(atoms))
        begin = ""
        for atom in reversed(atoms):
            begin = f"(?:{atom}{begin})?"
        self._begin = re.compile(begin)

    def match(self, text: str) -> re.Match[str] | None:
        """The match at the begin of ``text``."""
        return self._whole.match(text)

    def may_grow(self, text: str) -> bool:
        """Whether ``text`` may become a match when more follows."""
        return self._begin.fullmatch(text) is not None
