"""What clients saw of faults, and the reasons that failed requests were given."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from splitserve.lab.measure.outcomes import standing
from splitserve.lab.plan.faults import KV_POOL_FULL
from splitserve.lab.plan.phases import FAULTS
from splitserve.lab.report import estimates, samples
from splitserve.lab.report.blocks import Block, Cell, Section, Table, Text
from splitserve.lab.report.figure import Figure
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.sections.arms import at_target
from splitserve.lab.report.sections.mishaps import mishaps
from splitserve.lab.run.faults.seen import FaultSeen
from splitserve.lab.run.journal import State
from splitserve.lab.stats.shares import Count

MOST: Final = 20
TITLE: Final = "Fault and retry visibility"

_STRUCK: Final = (
    "fault",
    "what was done",
    "to the first good answer",
    "until all was whole",
    "failed and told so",
    "failed in silence",
)
_NOTE: Final = (
    "Told so: a status of 4xx or 5xx, or an error in the stream. In silence: a stream cut or "
    "stalled without one, no answer at all, or one that is not what was asked for. The first good "
    "answer is to a request that was due after the fault. One run each: a description."
)


def faults(results: StudyResults) -> Section:
    """Each fault with what came of it, those that were left out, and reasons at the target."""
    blocks = (*_faults(results), *_at_target(results), mishaps(results))
    return Section(TITLE, blocks)


def _faults(results: StudyResults) -> list[Block]:
    ran = [run.fault for run in samples.accepted(results) if run.fault is not None]
    left_out = [
        (one.run.series, one.reason or "no reason recorded")
        for one in results.runs
        if one.run.phase == FAULTS and one.state is State.SKIPPED
    ]
    blocks: list[Block] = []
    if ran:
        blocks += [
            _judgement(ran),
            Table("Faults, brought about once each", _STRUCK, tuple(map(_struck, ran)), _NOTE),
            _periods(ran),
            *_counted(ran),
        ]
    if left_out:
        blocks.append(Table("Not brought about", ("fault", "reason"), tuple(left_out)))
    return blocks or [
        Text("No fault was brought about. To see them: [further] faults in the plan.")
    ]


def _judgement(ran: Sequence[FaultSeen]) -> Text:
    silent = [f"{one.silent} under {one.fault}" for one in ran if one.silent]
    if silent:
        return Text(f"Requests failed and were not told so: {', '.join(silent)}.", strong=True)
    failed = sum(one.told for one in ran)
    if not failed:
        return Text("No request failed, and every answer was what was asked for.")
    return Text(f"Every failure was told to its client: {failed} requests.")


def _struck(seen: FaultSeen) -> tuple[Cell, ...]:
    whole: Cell = "as long as the run" if seen.fault == KV_POOL_FULL else "not seen in the run"
    if seen.whole_s is not None:
        whole = Figure(seen.whole_s - seen.began_s, "s")
    first: Cell = "none was due, or none was good"
    if seen.first_good_s is not None:
        first = Figure(seen.first_good_s, "s")
    return seen.fault, seen.what, first, whole, f"{seen.told} requests", f"{seen.silent} requests"


def _periods(ran: Sequence[FaultSeen]) -> Table:
    rows = [
        (
            f"{seen.fault}: {part.name}",
            estimates.share([Count(part.good, part.requests)]),
            "; ".join(f"{name}: {n} requests" for name, n in part.outcomes.items()),
        )
        for seen in ran
        for part in seen.periods
        if part.requests
    ]
    caption = "How requests ended, by when they were due"
    return Table(caption, ("fault and requests", "kept the SLO", "ended"), tuple(rows))


def _counted(ran: Sequence[FaultSeen]) -> list[Block]:
    counts = tuple(
        (seen.fault, name, f"{n} times") for seen in ran for name, n in seen.counters.items()
    )
    errors = tuple(
        (seen.fault, error, f"{n} requests") for seen in ran for error, n in seen.errors.items()
    )
    blocks: list[Block] = [
        Table(
            "What the gateway counted: placements, refusals, retries and their reasons",
            ("fault", "counter", "grew by"),
            counts,
        )
        if counts
        else Text("The gateway shows no counters: retries and their reasons are not visible.")
    ]
    if errors:
        head = ("fault", "error", "requests")
        blocks.append(Table("Errors that clients were given", head, errors))
    return blocks


def _at_target(results: StudyResults) -> tuple[Block, ...]:
    reasons = [(name, *one) for name, runs in at_target(results) for one in _reasons(runs)]
    if not reasons:
        return (Text("No request failed at the target cell."),)
    return (Table("Reasons at the target cell", ("arm", "reason", "requests"), tuple(reasons)),)


def _reasons(runs: Sequence[RunResult]) -> list[tuple[str, str]]:
    failed = Counter(
        f"{record.outcome.value}: {record.status or ''} {record.error}".strip()
        for run in runs
        for record in samples.asked(run)
        if standing(record).failed
    )
    return [(reason, f"{n} requests") for reason, n in failed.most_common(MOST)]
