"""Whether the split does what it is for, before anything is timed."""

from collections.abc import Sequence

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.outcomes import measured, standing
from splitserve.lab.run.handoffs import RunHandoffs


def why_not_working(
    records: Sequence[RequestRecord], handoffs: RunHandoffs | None, tells_handoffs: bool
) -> str | None:
    """None when every request was answered and, where the arm ``tells_handoffs``, KV was moved."""
    asked = measured(records)
    failed = [record for record in asked if not standing(record).served]
    if failed:
        one = failed[0]
        return (
            f"{len(failed)} of {len(asked)} short requests failed, first {one.request_id}: "
            f"{one.outcome.value} {one.error}".rstrip()
        )
    if not tells_handoffs:
        return None
    if handoffs is None or handoffs.done == 0:
        return "no KV was handed from prefill to decode"
    if handoffs.whole.hits:
        return f"{handoffs.whole.hits} of {handoffs.whole.total} prompts were computed by decode"
    return None
