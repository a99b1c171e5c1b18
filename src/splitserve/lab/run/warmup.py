"""Where a run's warm-up really ended: the plan's minimum, which ``mser5`` may lengthen.

Looked for in TTFT in the order in which requests were due. The larger cut of both runs of a pair
holds for both, by request, so that they still answer the same ones.
"""

from collections.abc import Sequence, Set
from math import ceil
from typing import Final

import msgspec

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import ttft_user
from splitserve.lab.measure.outcomes import counted, measured
from splitserve.lab.plan.study import Metrics
from splitserve.lab.stats.window import BATCH, still_falls, warmup_end

MSER5: Final = "mser5"
_ABOVE: Final = 10
"""Requests that a quantile needs above it; no cut may leave fewer."""


def unsettled(records: Sequence[RequestRecord], metrics: Metrics) -> bool:
    """Warm-up would take more than half of the window: the run says nothing of the steady state.

    Never of a run without warm-up, under rule ``fixed``, or of too few requests to tell.
    """
    if metrics.warmup_rule != MSER5 or not any(record.warmup for record in records):
        return False
    waits = [ttft_user(record) for record in _in_order(records)]
    return len(waits) >= BATCH * (BATCH + 1) and warmup_end(waits) is None and still_falls(waits)


def settling(records: Sequence[RequestRecord], metrics: Metrics) -> frozenset[str]:
    """Ids of the first measured requests that belong to warm-up yet."""
    if metrics.warmup_rule != MSER5 or not any(record.warmup for record in records):
        return frozenset()
    asked = _in_order(records)
    # A cut past the middle of a window that does not fall is chance: see ``still_falls``.
    cut = warmup_end([ttft_user(record) for record in asked]) or 0
    # 1e-9: 10 / (1 - 0.9) is a little over 100 in binary.
    spare = len(asked) - ceil(_ABOVE / (1 - metrics.decided_at) - 1e-9)
    return frozenset(record.request_id for record in asked[: max(0, min(cut, spare))])


def lengthened(records: Sequence[RequestRecord], ids: Set[str]) -> list[RequestRecord]:
    """``records`` with those of ``ids`` as warm-up too."""
    return [
        msgspec.structs.replace(record, warmup=True) if record.request_id in ids else record
        for record in records
    ]


def _in_order(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    return sorted(counted(measured(records)), key=lambda record: record.intended_s)
