"""Whether the start of a prompt costs less to read from a decode worker than to compute. Pure.

Both are learnt from what was done here: how long steps took for the prompt tokens that they
computed, and how long reads took for their bytes. Until both are known everything is read, which is
how it is learnt; and again where the last read is too long ago to be believed.
"""

from collections import deque
from itertools import combinations
from statistics import median
from typing import Final

from splitserve.ids import WorkerId

KEPT: Final = 0.9
"""Of the weight of earlier steps, at each step that computes prompts."""

LEAST_PULLS: Final = 3
"""Of fewer reads one may have been the first of its link, which takes seconds on some paths."""

PULLS: Final = 8
"""As many of the last reads from a worker are remembered."""

BELIEVED_S: Final = 60.0
"""After so long without a read one is made to see whether its cost is still the same."""

MARGIN: Final = 0.25
"""Computing has to be cheaper by this share of its own time..."""

LEAST_S: Final = 0.02
"""...and by so long at least: less is not worth filling the device, and reads vary by as much where
cores are shared. So nothing that is read within this time is ever computed instead."""


def computing_is_cheaper(pull_s: float | None, compute_s: float | None) -> bool:
    """By enough to compute what could be read. None: not known."""
    if pull_s is None or compute_s is None:
        return False
    return pull_s - compute_s > max(LEAST_S, MARGIN * compute_s)


class ComputeRate:
    """Seconds of a prompt token, over the steps in which there were any; recent ones count more."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0
        self._total = 0
        self._since: float | None = None

    def restart(self, total: int) -> None:
        """Steps are told of from now on; ``total`` prompt tokens were computed before."""
        self._total, self._since = total, None

    def stepped(self, total: int, began: float, ended: float, *, told: bool, goes_on: bool) -> None:
        """A step has been called. ``total`` prompt tokens are computed now; ``told``: it brought
        tokens of answers. ``goes_on``: more is to be done or being computed.

        Where a step brings what the one before began, its time is from the end of that.
        """
        since = began if self._since is None else self._since
        tokens, self._total = total - self._total, total
        if tokens > 0:
            self._tokens = KEPT * self._tokens + tokens
            self._seconds = KEPT * self._seconds + (ended - since)
        if tokens > 0 or told:
            since = ended
        self._since = since if goes_on else None

    def seconds(self, tokens: int) -> float | None:
        """Of computing so many; None while that is not known."""
        if not self._tokens or self._seconds <= 0:
            return None
        return tokens * self._seconds / self._tokens


class PullTime:
    """Of reads from one worker: a time that each takes and one for each byte, robust against single
    reads that took long."""

    def __init__(self) -> None:
        self._reads: deque[tuple[int, float]] = deque(maxlen=PULLS)
        self._last = 0.0

    def note(self, nbytes: int, seconds: float, now: float) -> None:
        self._reads.append((nbytes, seconds))
        self._last = now

    def seconds(self, nbytes: int, now: float) -> float | None:
        """None where too little is known, or nothing lately."""
        if len(self._reads) < LEAST_PULLS or now - self._last > BELIEVED_S:
            return None
        slope = self._per_byte()
        fixed = max(0.0, median(seconds - slope * size for size, seconds in self._reads))
        return fixed + slope * nbytes

    def _per_byte(self) -> float:
        """The median slope between two reads. Where all were of one size, what they took is all for
        their bytes."""
        slopes = [
            (a_s - b_s) / (a - b) for (a, a_s), (b, b_s) in combinations(self._reads, 2) if a != b
        ]
        if slopes:
            return max(0.0, median(slopes))
        return median(seconds / nbytes for nbytes, seconds in self._reads)


class PullCost:
    """What one worker has learnt of both. ``skipped`` reads were not made because of it."""

    def __init__(self) -> None:
        self.compute = ComputeRate()
        self.skipped = 0
        self._pulls: dict[WorkerId, PullTime] = {}

    def pulled(self, worker: WorkerId, nbytes: int, seconds: float, now: float) -> None:
        """A read from ``worker`` has brought all its bytes."""
        if nbytes > 0:
            self._pulls.setdefault(worker, PullTime()).note(nbytes, seconds, now)

    def skips(self, worker: WorkerId, nbytes: int, tokens: int, ahead: int, now: float) -> bool:
        """Whether ``tokens``, which ``worker`` has as so many bytes, are to be computed here.
        ``ahead`` of them so many others wait to be computed: meanwhile reading costs nothing."""
        known = self._pulls.get(worker)
        pull_s = None if known is None else known.seconds(nbytes, now)
        skips = computing_is_cheaper(pull_s, self.compute.seconds(ahead + tokens))
        self.skipped += skips
        return skips
