"""When to start a process again that died. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The wait doubles with each failure in a row, from ``first_s`` to ``limit_s``.

    A process that ran for ``healthy_s`` begins anew.
    """

    first_s: float = 0.5
    limit_s: float = 30.0
    healthy_s: float = 60.0

    def failures_in_row(self, before: int, uptime_s: float) -> int:
        """The count after one more death, given the count before it."""
        return 1 if uptime_s >= self.healthy_s else before + 1

    def delay_s(self, failures: int) -> float:
        """How long to wait after ``failures`` (at least 1) in a row."""
        # Past this exponent the limit holds for certain, and 2.0**n would overflow one day.
        return min(self.limit_s, self.first_s * 2.0 ** min(failures - 1, 64))
