"""Finds markers in text that comes in pieces, however it is cut."""

import re
from collections.abc import Callable, Iterable


class MarkFinder:
    """Looks for the first of several markers; of two that begin at one place, the longer.

    ``held`` is text that may still become a marker: shorter than the longest of them.
    """

    __slots__ = ("_begins", "_firsts", "_longest", "_pattern", "held")

    def __init__(self, markers: Iterable[str]) -> None:
        # Longest first: an alternation takes the first that fits.
        ordered = sorted(set(markers), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered)))
        self._firsts = frozenset(marker[0] for marker in ordered)
        self._longest = len(ordered[0])
        # Each marker without its end.
        self._begins = frozenset(
            marker[:end] for marker in ordered for end in range(1, len(marker))
        )
        self.held = ""

    def feed(self, text: str) -> tuple[str, str | None, str]:
        """``(text before the marker, the marker, text after it)``.

        While none is certain the marker is None, nothing is after it, and what may become one is
        held back. What is after a marker is the caller's to feed, here or elsewhere.
        """
        if not self.held and self._firsts.isdisjoint(text):
            return text, None, ""
        pending, self.held = self.held + text, ""
        found = self._pattern.search(pending)
        if found is not None and not self._may_grow(pending, found.start()):
            return pending[: found.start()], found[0], pending[found.end() :]
        cut = self._cut(pending) if found is None else found.start()
        self.held = pending[cut:]
        return pending[:cut], None, ""

    def run(self, without: str = "", *, last: str = "") -> Callable[[str], object | None]:
        """Matches text in which no marker begins, without these characters (as in a character
        class of a regular expression), and without ``last`` at its end."""
        others = re.escape("".join(self._firsts)) + without
        return re.compile(rf"[^{others}]*[^{others}{last}]").fullmatch

    def finish(self) -> tuple[str, str | None, str]:
        """As ``feed``, when no text follows: nothing is held back any more."""
        pending, self.held = self.held, ""
        found = self._pattern.search(pending)
        if found is None:
            return pending, None, ""
        return pending[: found.start()], found[0], pending[found.end() :]

    def _may_grow(self, pending: str, start: int) -> bool:
        """Whether all from ``start`` is the begin of a longer marker."""
        return len(pending) - start < self._longest and pending[start:] in self._begins

    def _cut(self, pending: str) -> int:
        """Where the text begins that may become a marker."""
        for start in range(max(0, len(pending) - self._longest + 1), len(pending)):
            if pending[start] in self._firsts and pending[start:] in self._begins:
                return start
        return len(pending)
