"""How fast prompts and answers get done, from those that were. Times in seconds."""

from math import exp
from typing import Final

from splitserve.ids import WorkerId

MEMORY_S: Final = 5.0
"""Work done this long ago counts 1/e of what is done now, in time spent working."""

MEMORY_ANSWERS: Final = 200
"""How many answers the mean time of one looks back on."""


class PromptRate:
    """One worker's prompt tokens per second while it has prompts waiting.

    Time in which one prompt is alone is left out: a short prompt's time is overhead, and tells
    nothing of how fast many would go.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._backlogged = False
        self._tokens = 0.0
        self._busy_s = 0.0

    @property
    def tokens_per_s(self) -> float | None:
        """None before anything is known."""
        return self._tokens / self._busy_s if self._busy_s > 0 else None

    def begin(self, now: float, *, alone: bool) -> None:
        """A prompt was sent; ``alone``: nothing else waits there."""
        if alone or self._since is None:
            self._since, self._backlogged = now, False

    def done(self, tokens: int, now: float, *, more: bool, saturated: bool) -> None:
        """A prompt of ``tokens`` has its first token. ``more``: others wait at the worker,
        ``saturated``: others wait for room anywhere."""
        if self._since is None:
            return
        self._backlogged = self._backlogged or more or saturated
        if self._backlogged:
            elapsed = max(0.0, now - self._since)
            fade = exp(-elapsed / MEMORY_S)
            self._tokens = self._tokens * fade + tokens
            self._busy_s = self._busy_s * fade + elapsed
        self._since = now if more else None

    def idle(self) -> None:
        """What waited there was given up."""
        self._since = None


class Rates:
    """Of all workers, and the mean time an answer holds its place."""

    def __init__(self) -> None:
        self._prompts: dict[WorkerId, PromptRate] = {}
        self._answers = 0
        self._answer_s = 0.0

    def prompt(self, worker: WorkerId) -> PromptRate:
        rate = self._prompts.get(worker)
        if rate is None:
            rate = self._prompts[worker] = PromptRate()
        return rate

    def tokens_per_s(self, worker: WorkerId) -> float | None:
        rate = self._prompts.get(worker)
        return None if rate is None else rate.tokens_per_s

    @property
    def answer_s(self) -> float | None:
        """From placement to last token; None before the first answer is complete."""
        return self._answer_s if self._answers else None

    def answered(self, seconds: float) -> None:
        self._answers = min(self._answers + 1, MEMORY_ANSWERS)
        self._answer_s += (seconds - self._answer_s) / self._answers
