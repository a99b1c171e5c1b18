"""Regular expressions: what they may hold, what they cost, and their form in a grammar."""

import re
from typing import Final

from llguidance import regex_to_lark

from splitserve.errors import CallerError
from splitserve.structured.limits import Limits, check_depth, check_text, check_work

_BRACKETS: Final = re.compile(r"[()\[\]]")
_COUNTED: Final = re.compile(r"(?<!\\)\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}")
_LARGE_CLASS: Final = re.compile(r"\\[pPwW]")
_LARGE_CLASS_US: Final = 60
_CHARACTER_US: Final = 6


def regex_terminal(pattern: str, limits: Limits) -> str:
    """A grammar's token that matches all of ``pattern``. Raises CallerError for one too large."""
    check_regex(pattern, limits)
    check_work(regex_work_us(pattern), limits)
    # Two slashes would begin a comment.
    return f"/{regex_to_lark(pattern)}/" if pattern else '""'


def check_regex(pattern: str, limits: Limits) -> None:
    """Bounds what the library does not. Whether it is a regular expression, the library says."""
    check_text(pattern, limits.max_grammar_bytes)
    check_depth(pattern, _BRACKETS, limits)
    check_repeats(pattern, limits)


def check_repeats(text: str, limits: Limits) -> None:
    """Raises CallerError for a count above ``max_repeat`` in any ``{n,m}`` of ``text``."""
    for found in _COUNTED.finditer(text):
        for count in found.groups(default=""):
            # Compared as text first: a number of many digits takes long to read.
            digits = count.lstrip("0")
            if len(digits) > len(str(limits.max_repeat)) or int(digits or 0) > limits.max_repeat:
                raise CallerError(
                    f"repeats something {digits[:12]} times; at most {limits.max_repeat} is allowed"
                )


def regex_work_us(pattern: str) -> int:
    return _CHARACTER_US * len(pattern) + _LARGE_CLASS_US * len(_LARGE_CLASS.findall(pattern))
