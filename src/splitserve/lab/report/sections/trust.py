"""Whether the runs may be trusted, and what is needed to repeat them."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from splitserve.lab.report import estimates
from splitserve.lab.report.blocks import Block, Cell, Listing, Section, Table, Text
from splitserve.lab.report.figure import NOT_MEASURED
from splitserve.lab.report.plots import Curve, Ecdf
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.rows import lags
from splitserve.lab.report.sections.arms import at_target
from splitserve.lab.report.sections.own_noise import funnels
from splitserve.lab.run.environment import changed
from splitserve.lab.run.journal import State

MS: Final = 1000.0


def validity(results: StudyResults) -> Section:
    """Void runs, the client's own lag, clocks and self-test."""
    states = Counter(result.state.value for result in results.runs)
    counts = "; ".join(f"{states[s.value]} {s.value}" for s in State if states[s.value])
    voids = [one for one in results.runs if one.state is State.VOID]
    skipped = [one for one in results.runs if one.state is State.SKIPPED]
    lag = tuple((name, _lag(runs)) for name, runs in at_target(results))
    curves = tuple(
        Curve(name, tuple(MS * value for run in runs for value in lags(run)))
        for name, runs in at_target(results)
    )
    clock = results.plan.study.metrics.clock
    blocks: list[Block] = [
        Text(f"Runs: {counts or 'none'}. Only accepted ones enter figures; none is ever spliced."),
        _listed("Void runs, all of them", voids) if voids else Text("No run was void."),
        _listed("Skipped by decision", skipped) if skipped else Text("No run was skipped."),
        Table("How late the client sent", ("arm", "p99 of the lag"), lag),
        Ecdf("Lag of the client's arrivals", "sent after due", "ms", curves),
        *funnels(results),
        Text(f"Client times are intervals of one monotonic clock. Across processes: mode {clock}."),
        *_self_test(results.self_test),
    ]
    return Section("Validity", tuple(blocks))


def environment(results: StudyResults) -> Section:
    """What was captured, what changed, and the commands."""
    ran = [one for one in results.runs if one.before]
    first = ran[0].before if ran else {}
    captured = tuple((key, first[key]) for key in sorted(first))
    changes = tuple(row for one in ran for row in _changes(one))
    digest = results.plan.digest
    sources = results.plan.corpus
    corpus = sources.sha256 if sources else "made from the plan's seed"
    blocks: list[Block] = [
        Table("Captured before the first run", ("what", "value"), captured, folded=True)
        if captured
        else Text("The environment was not captured."),
        Table("Changed during a run", ("run", "what", "before", "after"), changes)
        if changes
        else Text("Nothing captured changed during a run."),
        Table("Hashes, SHA-256", ("of", "hash"), (("plan", digest), ("corpus", corpus))),
        Listing("Commands", results.commands or ("not recorded",)),
    ]
    return Section("Environment and how to reproduce", tuple(blocks))


def _self_test(says: str) -> tuple[Block, ...]:
    """How it ended, and every form of stream that was tried."""
    *each, ended = says.splitlines() or [NOT_MEASURED]
    told = Text(f"Self-test of the client, before the first run: {ended}")
    if not each:
        return (told,)
    rows = tuple((line,) for line in each)
    return told, Table("Self-test, form by form", ("form",), rows, folded=True)


def _listed(title: str, runs: Sequence[RunResult]) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            f"run {one.run.number}, attempt {one.attempt}",
            one.run.series,
            one.run.arm,
            one.reason or "no reason recorded",
        )
        for one in runs
    )
    return Table(title, ("run", "series", "arm", "reason"), rows)


def _lag(runs: Sequence[RunResult]) -> Cell:
    return estimates.quantile_of_runs([lags(run) for run in runs], 0.99, "ms", MS)


def _changes(one: RunResult) -> list[tuple[str, str, str, str]]:
    if not one.after:
        return []
    name = f"run {one.run.number}, attempt {one.attempt}"
    absent = "absent"
    return [
        (name, key, one.before.get(key, absent), one.after.get(key, absent))
        for key in changed(dict(one.before), dict(one.after))
    ]
