"""Text of others, made harmless for HTML, SVG and XML."""

import html
import re
from typing import Final

_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not know, not even escaped."""


def plain(text: str) -> str:
    """``text`` with U+FFFD for each character that a document may not hold."""
    return _FORBIDDEN.sub("�", text)


def escaped(text: str) -> str:
    """``text`` for element content and for attribute values in quotes."""
    return html.escape(plain(text), quote=True)
