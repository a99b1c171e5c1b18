"""What the run that goes on has shown so far. It is made anew with each run."""

from bisect import insort
from collections import Counter
from collections.abc import Sequence

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import ttft_user
from splitserve.lab.measure.outcomes import standing
from splitserve.lab.measure.tail import TailRule, tail_itl


class Running:
    """Grows with the records of one run; warm-up is left out of times, and not of failures."""

    def __init__(self, rule: TailRule) -> None:
        self.failed: Counter[str] = Counter()
        self._rule = rule
        self._taken = 0
        self._ttft_s: list[float] = []
        self._tail_itl_s: list[float] = []

    def take(self, records: Sequence[RequestRecord]) -> None:
        """``records`` of the run from its start; those taken before are not looked at again."""
        for record in records[self._taken :]:
            self._add(record)
        self._taken = len(records)

    @property
    def ttft_s(self) -> float | None:
        """The median so far, infinite where failures reach it; None before the first answer."""
        return _median(self._ttft_s)

    @property
    def tail_itl_s(self) -> float | None:
        """The same of tail ITL."""
        return _median(self._tail_itl_s)

    def _add(self, record: RequestRecord) -> None:
        if standing(record).failed:
            self.failed[record.outcome.value] += 1
        if record.warmup or not standing(record).counted:
            return
        insort(self._ttft_s, ttft_user(record))
        tail_s = tail_itl(record, self._rule)
        if tail_s is not None:
            insort(self._tail_itl_s, tail_s)


def _median(ordered: Sequence[float]) -> float | None:
    return ordered[(len(ordered) - 1) // 2] if ordered else None
