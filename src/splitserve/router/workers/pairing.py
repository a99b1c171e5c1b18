"""Which prefill workers to ask for a link to which decode workers, and when again."""

from collections.abc import Iterator, Sequence
from typing import Final

from splitserve.router.workers.record import WorkerRecord

WARM_UP_S: Final = 5.0
"""How long links may take at the start before this gateway is called ready without them."""


def pairs(records: Sequence[WorkerRecord]) -> Iterator[tuple[WorkerRecord, WorkerRecord]]:
    """Every prefill worker with every decode worker that it could write into."""
    able = [r for r in records if r.known and not r.problem]
    for prefill in able:
        for decode in able:
            if (prefill.role, decode.role) != ("prefill", "decode"):
                continue
            if prefill.connector == decode.connector:
                yield prefill, decode


def linked(prefill: WorkerRecord, decode: WorkerRecord) -> bool:
    """As the decode worker reports it."""
    return decode.load is not None and prefill.name in decode.load.linked


class PairRequests:
    """When each pair was last asked to link. Links are the workers' own; asking twice is free."""

    def __init__(self, retry_s: float) -> None:
        self._retry_s = retry_s
        self._asked: dict[tuple[str, str], float] = {}
        self._met: dict[tuple[str, str], float] = {}

    def due(
        self, records: Sequence[WorkerRecord], now: float
    ) -> list[tuple[WorkerRecord, WorkerRecord]]:
        """Pairs to ask for now: new ones, and ones that are not linked after ``retry_s``."""
        due = []
        for prefill, decode in pairs(records):
            key = (prefill.name, decode.name)
            asked = self._asked.get(key)
            waits = asked is not None and (linked(prefill, decode) or now - asked < self._retry_s)
            if not waits:
                self._asked[key] = now
                self._met.setdefault(key, now)
                due.append((prefill, decode))
        return due

    def warming(
        self, records: Sequence[WorkerRecord], now: float
    ) -> list[tuple[WorkerRecord, WorkerRecord]]:
        """Pairs that have met lately and are not linked yet."""
        return [
            (prefill, decode)
            for prefill, decode in pairs(records)
            if not linked(prefill, decode)
            and now - self._met.get((prefill.name, decode.name), now) < WARM_UP_S
        ]

    def forget(self, name: str) -> None:
        """The worker's connection ended: its pairs are new when it comes back."""
        for times in (self._asked, self._met):
            for key in [key for key in times if name in key]:
                del times[key]
