"""Where the time to the first token went, and what stalled an answer."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Final

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import token_events, ttft_user
from splitserve.lab.measure.outcomes import standing
from splitserve.lab.measure.tail import max_gap
from splitserve.lab.report import estimates, samples
from splitserve.lab.report.blocks import Block, Section, Table, Text
from splitserve.lab.report.figure import Figure
from splitserve.lab.report.plots import Curve, Ecdf, Timeline, Waterfall, WaterfallRow
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.sections.arms import TARGET, at_target

MS: Final = 1000.0
LEAST: Final = 10
"""So many requests must be in a band for a median of its parts."""

SERVER_PARTS: Final[Mapping[str, str]] = {
    "queue_time_ms": "queue or KV wait",
    "time_to_first_token_ms": "scheduled to first token",
}
"""What servers of the vLLM kind say of one request; their first-token time leaves out the queue."""

BANDS: Final = (("fast half", 0.0, 0.5), ("slow 10 %", 0.9, 1.0), ("slowest 1 %", 0.99, 1.0))


def attribution(results: StudyResults) -> Section:
    """Medians of parts in bands of TTFT, and the longest stall of A beside the same request in B.

    Medians, because the parts of a quantile do not add to the quantile of the sum.
    """
    rows: list[WaterfallRow] = []
    refused: list[tuple[str, Figure]] = []
    for name, runs in at_target(results):
        known = [r for run in runs for r in samples.asked(run) if _parts(r) is not None]
        for band, low, high in BANDS:
            inside = _band(known, low, high)
            label = f"{band}, {name}"
            if len(inside) >= LEAST:
                rows.append(_row(label, inside))
            elif known:
                why = f"n too small: {len(inside)} of {LEAST}"
                refused.append((label, Figure(None, "ms", len(inside), "requests", refused=why)))
    title = "Phase attribution"
    if not rows and not refused:
        nothing = "No server said where the time of a request went: no part can be told apart."
        return Section(title, (Text(nothing), *_stalls(results)))
    told = Table("Medians of parts", ("arm and band of TTFT", "parts"), (*_listed(rows), *refused))
    note = (
        "A decode server's queue time includes the wait for KV. The residual is what no clock of "
        "the server saw: network, proxy and front end."
    )
    waterfall = Waterfall("Time to first token by band", tuple(rows))
    blocks: list[Block] = [Text(note), told, waterfall, _change(results)]
    blocks += [_residuals(results), *_stalls(results)]
    return Section(title, tuple(blocks))


def _parts(record: RequestRecord) -> list[tuple[str, float]] | None:
    """Seconds per part; None where the server said nothing or the request failed."""
    if not record.metrics or not standing(record).served or record.lag_s is None:
        return None
    if not math.isfinite(ttft_user(record)):
        return None
    told = [(SERVER_PARTS[k], v / MS) for k, v in record.metrics.items() if k in SERVER_PARTS]
    if not told:
        return None
    parts = [("client lag", record.lag_s), *told]
    return [*parts, ("residual", ttft_user(record) - sum(seconds for _, seconds in parts))]


def _band(records: Sequence[RequestRecord], low: float, high: float) -> list[RequestRecord]:
    ordered = sorted(records, key=ttft_user)
    return ordered[math.floor(low * len(ordered)) : math.ceil(high * len(ordered))]


def _row(label: str, records: Sequence[RequestRecord]) -> WaterfallRow:
    found: dict[str, list[float]] = {}
    for record in records:
        for name, seconds in _parts(record) or ():
            found.setdefault(name, []).append(seconds)
    medians = tuple((name, median(values)) for name, values in found.items())
    return WaterfallRow(label, len(records), medians)


def _change(results: StudyResults) -> Table:
    """What TTFT changed by, part by part: means of a run add up, and pairs give the interval."""
    pairs = []
    for a, b in samples.pairs_of(results, TARGET):
        both = _means(a), _means(b)
        if both[0] and both[1]:
            pairs.append(both)
    names = dict.fromkeys(name for both in pairs for side in both for name in side)
    rows = [
        (name, _shift([a.get(name, 0.0) for a, _ in pairs], [b.get(name, 0.0) for _, b in pairs]))
        for name in names
    ]
    whole = _shift([sum(a.values()) for a, _ in pairs], [sum(b.values()) for _, b in pairs])
    note = "Means over the served requests that a server told about; a failed one has no parts."
    title = "Change of TTFT, B minus A, and what it is made of"
    return Table(title, ("part", "change"), (*rows, ("TTFT", whole)), note)


def _residuals(results: StudyResults) -> Ecdf:
    curves = tuple(
        Curve(
            name,
            tuple(
                MS * parts[-1][1]
                for run in runs
                for record in samples.asked(run)
                if (parts := _parts(record)) is not None
            ),
        )
        for name, runs in at_target(results)
    )
    return Ecdf("What no server's time explains, per request", "residual of TTFT", "ms", curves)


def _means(run: RunResult) -> dict[str, float]:
    """Seconds per part, a missing one being none; empty where no server told."""
    told = [dict(parts) for record in samples.asked(run) if (parts := _parts(record)) is not None]
    names = dict.fromkeys(name for parts in told for name in parts)
    return {name: fmean(parts.get(name, 0.0) for parts in told) for name in names}


def _shift(a: Sequence[float], b: Sequence[float]) -> Figure:
    return estimates.shift(a, b, MS, "ms")


def _listed(rows: Sequence[WaterfallRow]) -> list[tuple[str, str]]:
    return [
        (
            f"{row.label} (n = {row.n})",
            "; ".join(f"{name} {MS * seconds:.4g} ms" for name, seconds in row.parts),
        )
        for row in rows
    ]


def _stalls(results: StudyResults) -> tuple[Timeline, ...]:
    """The request that A stalled longest, in both arms of its pair."""
    longest: tuple[float, RunResult, RunResult, int] | None = None
    for a, b in samples.pairs_of(results, TARGET):
        first, second = samples.asked(a), samples.asked(b)
        for at in range(min(len(first), len(second))):
            gap = max_gap(first[at])
            if gap is not None and math.isfinite(gap) and (longest is None or gap > longest[0]):
                longest = gap, a, b, at
    if longest is None:
        return ()
    gap, a, b, at = longest
    title = f"ITL over time, pair {(a.run.pair or 0) + 1}, request {at + 1}"
    return (_timeline(f"{title}, in A", a, at, gap), _timeline(f"{title}, in B", b, at, gap))


def _timeline(title: str, run: RunResult, at: int, reach_s: float) -> Timeline:
    listed = samples.asked(run)
    events = token_events(listed[at])
    gaps = tuple((later, later - earlier) for (earlier, _), (later, _) in pairwise(events))
    others = [record for k, record in enumerate(listed) if k != at]
    spans = [
        (record.sent_s, tokens[0][0])
        for record in others
        if record.sent_s is not None and (tokens := token_events(record))
    ]
    return Timeline(title, gaps, tuple(spans), reach_s)
