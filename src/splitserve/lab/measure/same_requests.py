"""The same request in both arms: who gains and who pays, which two distributions do not show."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median_high, median_low
from typing import Final

from splitserve.lab.load.record import RequestRecord

WORSE: Final = math.log(1.1)
"""A request is made worse, or better, from a change of 10 % on."""


@dataclass(frozen=True, slots=True)
class Shifts:
    """ln(x_B / x_A) of each request that has a value in both arms; infinite where one failed."""

    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        low, high = median_low(self.ratios), median_high(self.ratios)
        return low if low == high else (low + high) / 2 if math.isfinite(high - low) else high

    @property
    def worse(self) -> float:
        """Share of requests, 0 to 1."""
        return sum(ratio > WORSE for ratio in self.ratios) / len(self.ratios)

    @property
    def better(self) -> float:
        """Share of requests, 0 to 1."""
        return sum(ratio < -WORSE for ratio in self.ratios) / len(self.ratios)


def shifts(
    a: Iterable[RequestRecord],
    b: Sequence[RequestRecord],
    value: Callable[[RequestRecord], float | None],
) -> Shifts | None:
    """Joined by request id; ``value`` gives seconds, infinite for a failure and None where there is
    nothing to compare. A request that failed in both arms tells nothing. None without a request."""
    others = {record.request_id: record for record in b}
    found = [
        _log_ratio(value(record), value(others[record.request_id]))
        for record in a
        if record.request_id in others
    ]
    known = tuple(ratio for ratio in found if ratio is not None)
    return Shifts(known) if known else None


def _log_ratio(before: float | None, after: float | None) -> float | None:
    if before is None or after is None or not (before > 0 and after > 0):
        return None
    if math.isinf(before) and math.isinf(after):
        return None
    if math.isinf(before) or math.isinf(after):
        return math.inf if math.isinf(after) else -math.inf
    return math.log(after / before)
