"""Where the time to the first token went, and what stalled an answer."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Final

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import token_events, ttft_user
from splitserve.lab.measure.parts import (
    GROUPS,
    Part,
    Parts,
    bytes_s,
    gap_parts,
    grouped,
    handoff_s,
    ttft_parts,
    unexplained,
)
from splitserve.lab.measure.tail import max_gap
from splitserve.lab.report import estimates, samples
from splitserve.lab.report.blocks import Block, Cell, Section, Table, Text
from splitserve.lab.report.figure import Figure
from splitserve.lab.report.plots import Curve, Ecdf, Timeline, Waterfall, WaterfallRow
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.sections.arms import TARGET, at_target

TITLE: Final = "Phase attribution"
MS: Final = 1000.0
LEAST: Final = 10
"""So many requests must be in a band for a median of its parts."""

BANDS: Final = (("fast half", 0.0, 0.5), ("slow 10 %", 0.9, 1.0), ("slowest 1 %", 0.99, 1.0))

NOTE: Final = (
    "Each part is an interval of one process. Decode's grant is how long it took to reserve room "
    "there before prefill began. The residual is what nobody timed: network and HTTP, and what "
    "passed between gateway and workers. Decode's first step is what follows the hand-off."
)

Reader = Callable[[RequestRecord], Parts | None]
Arm = tuple[str, list[RunResult]]


def attribution(results: StudyResults) -> Section:
    """Medians of parts in bands of TTFT, and the longest stall of A beside the same request in B.

    Medians, because the parts of a quantile do not add to the quantile of the sum. Without a word
    of parts where they do not account for the time.
    """
    arms = at_target(results)
    if not any(_known(runs, ttft_parts) for _, runs in arms):
        nothing = "No server said where the time of a request went: no part can be told apart."
        return Section(TITLE, (Text(nothing), *_stalls(results)))
    holes = [(name, why) for name, runs in arms if (why := unexplained(_all(runs))) is not None]
    if holes:
        told = "; ".join(f"{name}: {why}" for name, why in holes)
        hidden = Text(
            f"Parts are not shown: they do not account for the time. {told}.", strong=True
        )
        return Section(TITLE, (hidden, _residuals(arms), *_stalls(results)))
    blocks: list[Block] = [Text(NOTE), *_bands(arms), _change(results)]
    blocks += [*_between_tokens(arms), _residuals(arms), *_stalls(results)]
    return Section(TITLE, tuple(blocks))


def _all(runs: Iterable[RunResult]) -> list[RequestRecord]:
    return [record for run in runs for record in samples.asked(run)]


def _known(runs: Iterable[RunResult], reader: Reader) -> list[RequestRecord]:
    return [record for record in _all(runs) if reader(record) is not None]


def _bands(arms: Sequence[Arm]) -> tuple[Table, Waterfall]:
    rows: list[WaterfallRow] = []
    refused: list[tuple[Cell, ...]] = []
    for name, runs in arms:
        known = _known(runs, ttft_parts)
        for band, low, high in BANDS:
            inside = _band(known, low, high)
            label = f"{band}, {name}"
            if len(inside) >= LEAST:
                rows.append(_row(label, inside, ttft_parts))
            elif known:
                why = f"n too small: {len(inside)} of {LEAST}"
                figure = Figure(None, "ms", len(inside), "requests", refused=why)
                refused.append((label, figure))
    told = Table("Medians of parts", ("arm and band of TTFT", "parts"), (*_listed(rows), *refused))
    return told, Waterfall("Time to first token by band", tuple(rows))


def _band(records: Sequence[RequestRecord], low: float, high: float) -> list[RequestRecord]:
    ordered = sorted(records, key=ttft_user)
    return ordered[math.floor(low * len(ordered)) : math.ceil(high * len(ordered))]


def _row(label: str, records: Sequence[RequestRecord], reader: Reader) -> WaterfallRow:
    told = [parts for record in records if (parts := reader(record)) is not None]
    medians = [(part, median(parts.get(part, 0.0) for parts in told)) for part in _in_order(told)]
    return WaterfallRow(label, len(records), tuple((str(part), s) for part, s in medians if s))


def _in_order(told: Iterable[Parts]) -> list[Part]:
    found = {part for parts in told for part in parts}
    return [part for part in Part if part in found]


def _listed(rows: Sequence[WaterfallRow]) -> list[tuple[Cell, ...]]:
    return [
        (
            f"{row.label} (n = {row.n})",
            "; ".join(f"{name} {MS * seconds:.4g} ms" for name, seconds in row.parts),
        )
        for row in rows
    ]


def _change(results: StudyResults) -> Table:
    """What TTFT changed by, part by part: means of a run add up, and pairs give the interval."""
    pairs = []
    for a, b in samples.pairs_of(results, TARGET):
        both = _means(a), _means(b)
        if both[0] and both[1]:
            pairs.append(both)
    found = {name for both in pairs for side in both for name in side}
    names = [name for name in dict.fromkeys(GROUPS.values()) if name in found]
    rows = [
        (name, _shift([a.get(name, 0.0) for a, _ in pairs], [b.get(name, 0.0) for _, b in pairs]))
        for name in names
    ]
    whole = _shift([sum(a.values()) for a, _ in pairs], [sum(b.values()) for _, b in pairs])
    note = (
        "Means over the served requests that a server told about; a failed one has no parts. Queue "
        "has the wait for room in it, hand-off decode's grant, proxy what the gateway did and lost."
    )
    title = "Change of TTFT, B minus A, and what it is made of"
    return Table(title, ("part", "change"), (*rows, ("TTFT", whole)), note)


def _means(run: RunResult) -> dict[str, float]:
    """Seconds per group of parts, a missing one being none; empty where no server told."""
    told = [grouped(parts) for one in samples.asked(run) if (parts := ttft_parts(one)) is not None]
    names = dict.fromkeys(name for parts in told for name in parts)
    return {name: fmean(parts.get(name, 0.0) for parts in told) for name in names}


def _shift(a: Sequence[float], b: Sequence[float]) -> Figure:
    return estimates.shift(a, b, MS, "ms")


def _between_tokens(arms: Sequence[Arm]) -> tuple[Block, ...]:
    """The hand-off, which falls into the first gap where the first token did not wait for it."""
    rows: list[tuple[Cell, ...]] = [
        (name, *_handed_over(runs)) for name, runs in arms if _told(runs, handoff_s)
    ]
    if not rows:
        return ()
    note = (
        "From the end of prefill to where decode had the KV and went on, per request; where decode "
        "does not tell its first step, that is in it. Bytes: until the last one was in place."
    )
    columns = ("arm", "p50", "p95", "bytes, p50", "bytes, p95")
    table = Table("KV hand-off per request", columns, tuple(rows), note)
    bars = [
        _row(name, known, gap_parts)
        for name, runs in arms
        if len(known := _known(runs, gap_parts)) >= LEAST
    ]
    if not bars:
        return (table,)
    return table, Waterfall("From the first token to the second", tuple(bars))


def _handed_over(runs: Sequence[RunResult]) -> list[Figure]:
    return [
        estimates.quantile_of_runs(_told(runs, value), p, "ms", MS)
        for value in (handoff_s, bytes_s)
        for p in (0.5, 0.95)
    ]


def _told(
    runs: Iterable[RunResult], value: Callable[[RequestRecord], float | None]
) -> list[list[float]]:
    """One sample per run in which anybody told."""
    each = [[s for r in samples.asked(run) if (s := value(r)) is not None] for run in runs]
    return [sample for sample in each if sample]


def _residuals(arms: Sequence[Arm]) -> Ecdf:
    curves = tuple(
        Curve(
            name,
            tuple(
                MS * parts[Part.RESIDUAL]
                for record in _all(runs)
                if (parts := ttft_parts(record)) is not None
            ),
        )
        for name, runs in arms
    )
    return Ecdf("What no server's time explains, per request", "residual of TTFT", "ms", curves)


def _stalls(results: StudyResults) -> tuple[Timeline, ...]:
    """The request that A stalled longest, in both arms of its pair."""
    stalled = [
        (gap, number, (a, first), (b, second))
        for a, b in samples.pairs_of(results, TARGET)
        for number, (first, second) in enumerate(samples.same_requests(a, b), 1)
        if (gap := max_gap(first)) is not None and math.isfinite(gap)
    ]
    if not stalled:
        return ()
    gap, number, in_a, in_b = max(stalled, key=lambda one: one[0])
    title = f"ITL over time, pair {(in_a[0].run.pair or 0) + 1}, request {number}"
    return (_timeline(f"{title}, in A", *in_a, gap), _timeline(f"{title}, in B", *in_b, gap))


def _timeline(title: str, run: RunResult, shown: RequestRecord, reach_s: float) -> Timeline:
    gaps = tuple(
        (later, later - earlier) for (earlier, _), (later, _) in pairwise(token_events(shown))
    )
    spans = tuple(
        (record.sent_s, tokens[0][0])
        for record in samples.asked(run)
        if record.request_id != shown.request_id
        and record.sent_s is not None
        and (tokens := token_events(record))
    )
    return Timeline(title, gaps, spans, reach_s)
