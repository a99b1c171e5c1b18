"""The runs of a study that count, read back from disk."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.plan.phases import Run, runs_of
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.plan.study import Study
from splitserve.lab.run.events import coarser_size, in_events_of
from splitserve.lab.run.figures import figures, measures_of
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.handoffs import RunHandoffs, run_handoffs
from splitserve.lab.run.journal import State, newest_entries
from splitserve.lab.run.warmup import lengthened, settling
from splitserve.lab.verdict.evidence import Pair, RunFigures


@dataclass(frozen=True)
class DoneRun:
    """One run that counts. ``environment`` is that before it; metrics are the arm's."""

    run: Run
    start: str
    records: Sequence[RequestRecord]
    figures: RunFigures | None
    environment: Mapping[str, str]
    metrics_before: Mapping[str, float]
    metrics_after: Mapping[str, float]
    study: Study

    @cached_property
    def handoffs(self) -> RunHandoffs | None:
        return run_handoffs(self.metrics_before, self.metrics_after, self.records)


@dataclass(frozen=True, slots=True)
class DonePair:
    """Side A and side B of one pair; ``position`` in runs from the study's start. ``rebinned``:
    tail ITL of both is on events of the coarser one's size."""

    a: DoneRun
    b: DoneRun
    position: float
    rebinned: bool = False

    @property
    def shard(self) -> int:
        return self.a.run.shard


def accepted_runs(plan: Plan, folder: StudyFolder) -> Iterator[DoneRun]:
    """In the order of the plan, each read when it is asked for."""
    newest = newest_entries(folder.journal_path)
    for run in runs_of(plan):
        last = newest.get(run.number)
        if last is not None and last.state is State.ACCEPTED:
            yield _read(plan, folder, run, last.start)


def pairs_in(done: Sequence[DoneRun], phase: str, series: str) -> tuple[DonePair, ...]:
    """The whole pairs of one series, in order, whose runs both have figures.

    Warm-up is lengthened for both where one of them needs it, and events are put together where
    those of one side carry more tokens.
    """
    found: dict[int, dict[str, DoneRun]] = {}
    for one in done:
        run = one.run
        if run.phase == phase and run.series == series and run.pair is not None and one.figures:
            found.setdefault(run.pair, {})[run.side] = one
    both = [
        _settled(sides["A"], sides["B"]) for _, sides in sorted(found.items()) if len(sides) == 2
    ]
    return _alike([pair for pair in both if pair.a.figures and pair.b.figures])


def as_evidence(pairs: Sequence[DonePair]) -> tuple[Pair, ...]:
    return tuple(
        Pair(pair.a.figures, pair.b.figures, pair.position)
        for pair in pairs
        if pair.a.figures is not None and pair.b.figures is not None
    )


def _settled(a: DoneRun, b: DoneRun) -> DonePair:
    ids = max((settling(run.records, run.study.metrics) for run in (a, b)), key=len)
    position = (a.run.number + b.run.number) / 2
    if not ids:
        return DonePair(a, b, position)
    a, b = (_measured_anew(run, lengthened(run.records, ids)) for run in (a, b))
    return DonePair(a, b, position)


def _alike(pairs: Sequence[DonePair]) -> tuple[DonePair, ...]:
    """One rule for the whole series: pairs taken differently could not be put together."""
    size = coarser_size(
        (record for pair in pairs for record in pair.a.records),
        (record for pair in pairs for record in pair.b.records),
    )
    if size is None:
        return tuple(pairs)
    return tuple(
        DonePair(_coarser(pair.a, size), _coarser(pair.b, size), pair.position, rebinned=True)
        for pair in pairs
    )


def _measured_anew(run: DoneRun, records: Sequence[RequestRecord]) -> DoneRun:
    how = measures_of(run.study, run.run.cell)
    return replace(run, records=records, figures=figures(records, how))


def _coarser(run: DoneRun, size: int) -> DoneRun:
    """Only tail ITL: what users waited for their first token, and whether the SLO was met, does
    not depend on the other arm."""
    found = figures(in_events_of(run.records, size), measures_of(run.study, run.run.cell))
    assert run.figures is not None
    if found is None:
        return run
    return replace(run, figures=replace(run.figures, tail_itl_s=found.tail_itl_s))


def _read(plan: Plan, folder: StudyFolder, run: Run, start: str) -> DoneRun:
    records = folder.read_records(run.number)
    server = folder.read_json(f"runs/{run.number}/server.json")
    return DoneRun(
        run=run,
        start=start,
        records=records,
        figures=figures(records, measures_of(plan.study, run.cell)),
        environment=server["before"]["environment"],
        metrics_before=server["before"]["metrics"],
        metrics_after=server["after"]["metrics"],
        study=plan.study,
    )
