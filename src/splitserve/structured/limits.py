"""How large a constraint may be, so that none of them holds up anybody else."""

import re
from dataclasses import dataclass
from typing import Final

from llguidance import LLParserLimits

from splitserve.errors import CallerError


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_work_us`` bounds an estimate of the time to build a grammar, in microseconds of one
    core. ``max_depth`` counts nested brackets of any kind. ``max_repeat`` is the largest count in
    a ``{n,m}`` of a regular expression or grammar."""

    max_bytes: int = 256 << 10
    max_grammar_bytes: int = 32 << 10
    max_depth: int = 128
    max_work_us: int = 100_000
    max_repeat: int = 10_000
    max_choices: int = 5_000


LIMITS: Final = Limits()


def parser_limits() -> LLParserLimits:
    """What one sequence may take of the library's parser: about 20 ms a token and 20 MB.

    Large lexemes are not precomputed: that made the first token cheaper and every grammar dearer.
    """
    return LLParserLimits(
        max_items_in_row=1_600,
        initial_lexer_fuel=150_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=20_000,
        max_grammar_size=200_000,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


def check_text(text: str, max_bytes: int) -> None:
    """Raises CallerError for a text that is too long or no Unicode."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise CallerError("has half of a surrogate pair, which is no text") from None
    if size > max_bytes:
        raise CallerError(f"has {size} bytes; at most {max_bytes} are allowed")


def check_depth(text: str, brackets: re.Pattern[str], limits: Limits) -> None:
    """Raises CallerError where more ``brackets`` are open than allowed, matched or not."""
    depth = 0
    for found in brackets.finditer(text):
        if found[0] in "([{":
            depth += 1
            if depth > limits.max_depth:
                raise CallerError(f"is nested deeper than {limits.max_depth} levels")
        else:
            depth = max(0, depth - 1)


def check_work(work_us: int, limits: Limits) -> None:
    """Raises CallerError for a constraint that would take too long to build."""
    if work_us > limits.max_work_us:
        raise CallerError(
            f"is too complex: its estimated cost is {work_us}, at most {limits.max_work_us} is "
            "allowed (fewer properties, patterns, formats or number ranges cost less)"
        )
