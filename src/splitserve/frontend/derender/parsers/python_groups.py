"""JSON text in which it is still open whether a parenthesis began a tuple or only a group."""

from itertools import pairwise
from typing import Final

from splitserve.frontend.derender.parsers.base import JSONValue
from splitserve.frontend.derender.parsers.checkpoint import LONGEST, as_count, as_text

_MOST: Final = 4096
"""Characters of a literal that may pass while a question is open."""


class Groups:
    """Collects JSON text, and gives none out while a question is open.

    ``(x)`` is x and ``(x,)`` is a list, which shows only after x. ``left`` is how many characters
    may be read until it must show.
    """

    __slots__ = ("_open", "_texts", "left")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._open: list[int] = []
        self.left = _MOST

    @property
    def waiting(self) -> bool:
        """A question is open."""
        return bool(self._open)

    def begin(self) -> None:
        """A parenthesis: a question."""
        self._open.append(len(self._texts))
        self._texts.append("")

    def decide(self, text: str) -> None:
        """The answer to the last question: what the parenthesis stands for."""
        self._texts[self._open.pop()] = text
        if not self._open:
            self.left = _MOST

    def add(self, text: str) -> None:
        """More JSON text."""
        self._texts.append(text)

    def spend(self, characters: int) -> None:
        """So many more characters of the literal were read."""
        if self._open:
            self.left -= characters

    def take(self) -> str:
        """The text that is certain."""
        return "" if self._open else self.give_up()

    def give_up(self) -> str:
        """All text, as if every open parenthesis began a group."""
        text = "".join(self._texts)
        self._texts, self._open, self.left = [], [], _MOST
        return text

    def state(self) -> JSONValue:
        """A JSON value for ``restore``: the text between the questions."""
        places = [0, *self._open, len(self._texts)]
        pieces = ["".join(self._texts[a:b]) for a, b in pairwise(places)]
        return [pieces, self.left]

    def restore(self, state: JSONValue) -> None:
        """Goes on from ``state``. Raises ValueError or TypeError for one that is none."""
        pieces, left = state
        texts = [as_text(piece) for piece in pieces]
        if not texts or sum(map(len, texts)) > LONGEST:
            raise ValueError("this is no state of a literal")
        self.left = as_count(left)
        # Each question has its own place, before the text that follows it.
        self._open = [2 * number - 1 for number in range(1, len(texts))]
        self._texts = [part for text in texts for part in (text, "")][:-1]
