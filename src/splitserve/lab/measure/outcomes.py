"""Which outcomes count for what. One row per outcome; the table is the rule."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from splitserve.lab.load.record import Counting, Outcome, RequestRecord


@dataclass(frozen=True, slots=True)
class Standing:
    """``served``: its times are values, else infinite. ``may_be_good``: it can meet an SLO.
    ``gaps``: its gaps between tokens are known. ``counted``: it was the server's to answer, so it
    is in the denominators; ``degraded`` and ``failed`` are the error columns."""

    served: bool = True
    may_be_good: bool = True
    gaps: bool = True
    counted: bool = True
    degraded: bool = False
    failed: bool = False


_FAILED: Final = Standing(served=False, may_be_good=False, gaps=False, failed=True)

STANDINGS: Final[dict[Outcome, Standing]] = {
    Outcome.OK: Standing(),
    Outcome.NO_USAGE: Standing(),
    Outcome.COUNT_MISMATCH: Standing(may_be_good=False, gaps=False, degraded=True),
    Outcome.SHORT: Standing(degraded=True),
    Outcome.TRUNCATED: _FAILED,
    Outcome.BAD_STREAM: _FAILED,
    Outcome.INBAND_ERROR: _FAILED,
    Outcome.HTTP_ERROR: _FAILED,
    Outcome.CONNECT_ERROR: _FAILED,
    Outcome.TIMEOUT_FIRST: _FAILED,
    Outcome.TIMEOUT_GAP: _FAILED,
    Outcome.TIMEOUT_TOTAL: _FAILED,
    Outcome.NEVER_SENT: Standing(
        served=False, may_be_good=False, gaps=False, counted=False, failed=False
    ),
}
"""Source: the state table of the design; NEVER_SENT is the client's fault, not the server's."""


def standing(record: RequestRecord) -> Standing:
    """How ``record`` counts."""
    return STANDINGS[record.outcome]


def measured(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Without the warm-up."""
    return [record for record in records if not record.warmup]


def counted(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Those that were the server's to answer."""
    return [record for record in records if standing(record).counted]


@dataclass(frozen=True, slots=True)
class Tally:
    """Requests and tokens of a run. ``partial_tokens`` came in answers that failed."""

    outcomes: dict[Outcome, int]
    failed: int
    degraded: int
    never_sent_share: float
    completed_tokens: int
    partial_tokens: int


def tally(records: Iterable[RequestRecord]) -> Tally:
    """Counts by outcome; tokens of answers that came whole apart from those that did not."""
    listed = list(records)
    outcomes = Counter(record.outcome for record in listed)
    served = [record for record in listed if standing(record).served]
    never = outcomes[Outcome.NEVER_SENT]
    return Tally(
        dict(outcomes),
        failed=sum(standing(record).failed for record in listed),
        degraded=sum(standing(record).degraded for record in listed),
        never_sent_share=never / len(listed) if listed else 0.0,
        completed_tokens=sum(_tokens(record) for record in served),
        partial_tokens=sum(_tokens(r) for r in listed if not standing(r).served),
    )


def _tokens(record: RequestRecord) -> int:
    if record.output_tokens is not None and record.counting is Counting.EVENTS:
        return record.output_tokens
    return sum(count for _, count in record.events)
