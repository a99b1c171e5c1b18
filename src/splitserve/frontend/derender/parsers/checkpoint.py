"""Reads what a parser's ``state`` gave, and refuses what it cannot have given."""

from collections.abc import Collection
from typing import Final

from splitserve.frontend.derender.parsers.base import JSONValue
from splitserve.frontend.derender.parsers.marks import MarkFinder

LONGEST: Final = 1 << 16
"""Characters: more than any parser holds back."""


def as_one_of(value: JSONValue, known: Collection[str]) -> str:
    """``value``, which must be one of ``known``. Raises ValueError."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{value!r} is none of {sorted(known)}")
    return value


def as_text(value: JSONValue) -> str:
    """``value``, which must be a text. Raises ValueError."""
    if not isinstance(value, str) or len(value) > LONGEST:
        raise ValueError("this is not a text that a parser holds back")
    return value


def as_count(value: JSONValue) -> int:
    """``value``, which must be a count from 0. Raises ValueError."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def as_flag(value: JSONValue) -> bool:
    """``value``, which must be true or false. Raises ValueError."""
    if type(value) is not bool:
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def hold(finder: MarkFinder, value: JSONValue) -> None:
    """Lets ``finder`` hold ``value``. Raises ValueError when that is not the begin of a marker."""
    finder.held = ""
    if finder.feed(as_text(value)) != ("", None, ""):
        raise ValueError("this text is not the begin of a marker")
