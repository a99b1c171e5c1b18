"""When to start a process again that died, and when not any more. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The wait doubles with each failure in a row, from ``first_s`` to ``limit_s``.

    A process that ran for ``healthy_s`` begins anew. One that died ``give_up_after`` times within
    ``window_s`` is not started again: it would only take from the others what it needs to start.
    """

    first_s: float = 0.5
    limit_s: float = 30.0
    healthy_s: float = 60.0
    give_up_after: int = 5
    window_s: float = 120.0

    def failures_in_row(self, before: int, uptime_s: float) -> int:
        """The count after one more death, given the count before it."""
        return 1 if uptime_s >= self.healthy_s else before + 1

    def is_hopeless(self, deaths: Sequence[float], now: float) -> bool:
        """``deaths`` are the times of all deaths so far, up to ``now``."""
        return sum(now - death <= self.window_s for death in deaths) >= self.give_up_after

    def delay_s(self, failures: int) -> float:
        """How long to wait after ``failures`` (at least 1) in a row."""
        # Past this exponent the limit holds for certain, and 2.0**n would overflow one day.
        return min(self.limit_s, self.first_s * 2.0 ** min(failures - 1, 64))
