"""A plan and a verdict as lines for a terminal."""

from collections.abc import Iterator, Sequence

from splitserve.cli.lab_status import left_text
from splitserve.lab.plan.faults import why_not_made
from splitserve.lab.plan.phases import FAULTS, Run, target_cell
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.plan.study import why_not_adopt
from splitserve.lab.plan.table import Entry, table
from splitserve.lab.verdict.clauses import MEANINGS
from splitserve.lab.verdict.outcome import Outcome, Status, Verdict

TITLES = {
    Outcome.ADOPT: "ADOPT, as a candidate",
    Outcome.KEEP_SINGLE: "KEEP SINGLE",
    Outcome.TRY_CHUNKED: "TRY CHUNKED PREFILL",
    Outcome.INCONCLUSIVE: "INCONCLUSIVE",
    Outcome.INVALID: "INVALID",
}
_SIGNS = {Status.HOLDS: "yes", Status.FAILS: "no", Status.NOT_SHOWN: "not shown"}


def checked_lines(plan: Plan, runs: Sequence[Run]) -> Iterator[str]:
    """What a plan will do."""
    study = plan.study
    header = study.study
    yield f"{header.id} ({header.profile}), plan {plan.digest[:12]}"
    yield f"question: {header.question}, at {target_cell(study).text()}"
    yield f"arms: {plan.baseline.label} | {plan.split.label}, {study.comparison.kind}"
    for row in table(plan):
        yield ""
        yield row.name
        for name, entries in (("fixed", row.fixed), ("may vary", row.may_vary)):
            yield from (f"  {name:<9} {_entry(entry)}" for entry in entries)
    yield ""
    yield from _run_lines(plan, runs)
    yield f"budget {left_text(study.budget.seconds)}"
    reason = why_not_adopt(study) or "study.adopt is false"
    yield "ADOPT is possible" if study.may_adopt else f"ADOPT is not possible: {reason}"


def verdict_lines(verdict: Verdict) -> Iterator[str]:
    """The verdict, its reason, each clause with what it lacks, and the readings that were
    triggered. What holds is proven in the report."""
    yield f"verdict: {TITLES[verdict.outcome]}"
    yield verdict.reason
    for clause in verdict.clauses:
        yield f"  {clause.name:<14} {_SIGNS[clause.status]:<9}  {MEANINGS[clause.name]}"
        yield from (f"{'':<16} - {says}" for says in clause.lacking)
    for reading in verdict.readings:
        if reading.triggered:
            yield f"  {reading.name:<14} {reading.says} {reading.action}"


def _run_lines(plan: Plan, runs: Sequence[Run]) -> Iterator[str]:
    """One line a series: its runs follow each other."""
    yield f"{'phase':<14} {'series':<24} {'cell':<24} {'runs':>4}  about"
    for at, first in enumerate(runs):
        if at and _series(runs[at - 1]) == _series(first):
            continue
        together = [run for run in runs if _series(run) == _series(first)]
        seconds = sum(run.seconds for run in together)
        left_out = first.phase == FAULTS and why_not_made(plan, first.series)
        note = f"  not made: {left_out}" if left_out else ""
        yield (
            f"{first.phase:<14} {first.series:<24} {first.cell.text():<24} {len(together):>4}  "
            f"{left_text(seconds)}{note}"
        )
    yield f"{len(runs)} runs, about {left_text(sum(run.seconds for run in runs))}"


def _series(run: Run) -> tuple[str, str, str]:
    return (run.phase, run.series, run.cell.text())


def _entry(entry: Entry) -> str:
    name, value = entry
    return f"{name}: {value or 'as the servers say'}" if name != "nothing" else name
