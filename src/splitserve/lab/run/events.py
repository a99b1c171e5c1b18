"""Arms whose events carry different numbers of tokens, made comparable.

A sender of two tokens at a time has half the gaps, each twice as long. Where arms differ in that,
tail ITL is taken on events put together to the size of the coarser arm's.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import rebinned, token_events, tokens_per_event
from splitserve.lab.measure.outcomes import measured, standing
from splitserve.lab.stats.interval import mean

ALIKE: Final = 1.05
"""Mean tokens per event may differ by this factor."""


def mean_size(records: Iterable[RequestRecord]) -> float | None:
    """Tokens of an event, on average over measured requests; None where nobody counts them."""
    served = [record for record in measured(records) if standing(record).served]
    found = [size for record in served if (size := tokens_per_event(record)) is not None]
    return mean(found) if found else None


def coarser_size(a: Iterable[RequestRecord], b: Iterable[RequestRecord]) -> int | None:
    """Tokens that an event has to have for ``a`` and ``b`` to be compared; None where they are
    alike, or one does not count its tokens."""
    mean_a, mean_b = mean_size(a), mean_size(b)
    if mean_a is None or mean_b is None:
        return None
    if abs(math.log(mean_b / mean_a)) <= math.log(ALIKE):
        return None
    # 1e-9: a mean of equal whole numbers may be a little over them.
    return math.ceil(max(mean_a, mean_b) - 1e-9)


def in_events_of(records: Sequence[RequestRecord], size: int) -> list[RequestRecord]:
    """``records`` as a sender of ``size`` tokens an event would have shown them."""
    return [
        msgspec.structs.replace(record, events=rebinned(token_events(record), size))
        for record in records
    ]
