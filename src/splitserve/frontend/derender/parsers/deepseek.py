"""DeepSeek's special tokens around calls: V3, R1 and V3.1."""

from typing import Final


def _token(words: str) -> str:
    """The bars are U+FF5C, which looks like ``|``."""
    return f"<\uff5c{words}\uff5c>"


SECTION: Final = _token("tool▁calls▁begin")
BEGIN: Final = _token("tool▁call▁begin")
SEPARATOR: Final = _token("tool▁sep")
END: Final = _token("tool▁call▁end")
SECTION_END: Final = _token("tool▁calls▁end")

MARKERS: Final = (SECTION, BEGIN, SEPARATOR, END, SECTION_END)
