"""Finds stop strings in text that comes in pieces, however it is cut.

The stop string that is complete first ends the answer; of several that the same character
completes, the longest. Text that may still become a stop string is held back.
"""

from collections.abc import Sequence


class StopMatcher:
    """One automaton (Knuth-Morris-Pratt) a stop string: each character is looked at once.

    ``matched`` is the stop string that was found; nothing may be fed afterwards.
    """

    __slots__ = ("_automata", "_firsts", "_held", "_include_stop", "matched")

    def __init__(self, stops: Sequence[str], *, include_stop: bool) -> None:
        # Longest first, so that the first of those that match together is the longest.
        self._automata = [_Automaton(stop) for stop in sorted(set(stops), key=len, reverse=True)]
        self._firsts = frozenset(stop[0] for stop in stops)
        self._include_stop = include_stop
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """The text that is certain to be part of the answer."""
        if not self._held and self._firsts.isdisjoint(text):
            return text
        begin = len(self._held)
        pending = self._held + text
        for place, char in enumerate(text, begin + 1):
            for automaton in self._automata:
                if automaton.advance(char):
                    return self._match(automaton.stop, pending[:place])
        held = max(automaton.state for automaton in self._automata)
        cut = len(pending) - held
        self._held = pending[cut:]
        return pending[:cut]

    def finish(self) -> str:
        """The text still held back: no stop string can come of it any more."""
        held, self._held = self._held, ""
        return held

    def state(self) -> str:
        """What is held back: all that the automata know."""
        return self._held

    def restore(self, state: str) -> None:
        """Goes on from ``state``. Raises ValueError when it can be none of these stop strings."""
        held = self.feed(state) if state else ""
        if held or self.matched is not None:
            raise ValueError("this text is not the begin of a stop string")

    def _match(self, stop: str, text: str) -> str:
        self.matched = stop
        self._held = ""
        return text if self._include_stop else text[: -len(stop)]


class _Automaton:
    """``state`` is how many characters of ``stop`` the text so far ends with."""

    __slots__ = ("_fallback", "state", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.state = 0
        self._fallback = _fallbacks(stop)

    def advance(self, char: str) -> bool:
        """Whether ``char`` completes the stop string."""
        state = self.state
        while state and self.stop[state] != char:
            state = self._fallback[state - 1]
        if self.stop[state] == char:
            state += 1
        self.state = state
        return state == len(self.stop)


def _fallbacks(stop: str) -> list[int]:
    """For each prefix: the length of its longest proper prefix that is also its suffix."""
    lengths = [0] * len(stop)
    state = 0
    for place in range(1, len(stop)):
        while state and stop[place] != stop[state]:
            state = lengths[state - 1]
        if stop[place] == stop[state]:
            state += 1
        lengths[place] = state
    return lengths
