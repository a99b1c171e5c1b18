"""What clients saw of a fault, from a run's records and the gateway's counters. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from splitserve.lab.load.record import Outcome, RequestRecord
from splitserve.lab.measure.attainment import Slo, is_good
from splitserve.lab.measure.outcomes import counted, standing

FAULT_FILE: Final = "fault.json"

BEFORE: Final = "before"
UNDER_WAY: Final = "under way when it struck"
WHILE: Final = "due while it lasted"
AFTER: Final = "due afterwards"
PERIODS: Final = (BEFORE, UNDER_WAY, WHILE, AFTER)

TOLD: Final = (Outcome.HTTP_ERROR, Outcome.INBAND_ERROR)
"""Ways to fail that say so: a status of 4xx or 5xx, or an error in the stream. All others leave the
client to find out: a cut stream, silence, an answer that is not what was asked for."""

_COUNTERS: Final = (
    "splitserve_fallback_total",
    "splitserve_placements_total",
    "splitserve_admission_total",
    "splitserve_generations_total",
    "splitserve_preemptions_total",
)
_MOST: Final = 20


class Period(msgspec.Struct, frozen=True):
    """``good`` of ``requests`` kept the SLO; ``outcomes`` of all of them."""

    name: str
    requests: int
    good: int
    outcomes: dict[str, int]


class FaultSeen(msgspec.Struct, frozen=True, tag_field="schema", tag="fault/1"):
    """One fault, in seconds of the run's clock.

    ``what`` was done to whom. ``whole_s``: when nothing was amiss any more, None where that was not
    seen. ``first_good_s``: from the fault to the end of the first good answer to a request that was
    due after it, None for none. Of all requests that failed, ``told`` were told so and ``silent``
    were not. ``errors`` are what clients were given, ``counters`` what the gateway counted
    meanwhile, by name and labels; empty where it shows none.
    """

    fault: str
    what: str
    began_s: float
    whole_s: float | None
    first_good_s: float | None
    periods: tuple[Period, ...]
    told: int
    silent: int
    errors: dict[str, int]
    counters: dict[str, int]


def seen_of(
    fault: str,
    what: str,
    began_s: float,
    whole_s: float | None,
    records: Sequence[RequestRecord],
    slo: Slo,
    counters: dict[str, int],
) -> FaultSeen:
    """``records`` with those of warm-up: a fault does not ask who is measured."""
    asked = counted(records)
    parts: dict[str, list[RequestRecord]] = {name: [] for name in PERIODS}
    for record in asked:
        parts[_period(record, began_s, whole_s)].append(record)
    bad = [one for one in asked if standing(one).failed or standing(one).degraded]
    told = sum(one.outcome in TOLD for one in bad)
    return FaultSeen(
        fault=fault,
        what=what,
        began_s=began_s,
        whole_s=whole_s,
        first_good_s=_first_good_s(asked, slo, began_s),
        periods=tuple(_told(name, part, slo) for name, part in parts.items()),
        told=told,
        silent=len(bad) - told,
        errors=dict(Counter(map(_error, bad)).most_common(_MOST)),
        counters=counters,
    )


def counted_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, int]:
    """What the gateway's counters of failures, placements and refusals grew by."""
    grown = {
        name: round(value - before.get(name, 0.0))
        for name, value in after.items()
        if name.partition("{")[0] in _COUNTERS
    }
    return {name: number for name, number in sorted(grown.items()) if number > 0}


def _period(record: RequestRecord, began_s: float, whole_s: float | None) -> str:
    if record.ended_s < began_s:
        return BEFORE
    if record.intended_s <= began_s:
        return UNDER_WAY
    return WHILE if whole_s is None or record.intended_s <= whole_s else AFTER


def _first_good_s(records: Sequence[RequestRecord], slo: Slo, began_s: float) -> float | None:
    ends = [one.ended_s for one in records if one.intended_s > began_s and is_good(one, slo)]
    return min(ends) - began_s if ends else None


def _told(name: str, records: Sequence[RequestRecord], slo: Slo) -> Period:
    outcomes = Counter(record.outcome.value for record in records)
    good = sum(is_good(record, slo) for record in records)
    return Period(name, len(records), good, dict(sorted(outcomes.items())))


def _error(record: RequestRecord) -> str:
    status = "" if record.status in (None, 200) else f" {record.status}"
    return f"{record.outcome.value}{status}: {record.error or 'no text'}"
