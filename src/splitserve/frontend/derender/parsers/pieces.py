"""Cuts text that comes at once."""

from collections.abc import Iterator
from typing import Final

_LONGEST: Final = 1024


def pieces(text: str) -> Iterator[str]:
    """``text`` in pieces of at most 1,024 characters.

    A parser copies what is after a marker: for every marker of a long text, that would be a work
    that grows with the square of its length.
    """
    for start in range(0, len(text), _LONGEST):
        yield text[start : start + _LONGEST]
