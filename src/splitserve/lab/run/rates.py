"""The rate of a run: what the plan says, a share of the capacity that was measured, or what the
steps of a search before it lead to."""

from collections.abc import Mapping, Sequence

from splitserve.errors import UnavailableError
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.plan.phases import GOODPUT, Cell, Run, target_cell
from splitserve.lab.plan.study import OF_CAPACITY, Study
from splitserve.lab.run.figures import figures, measures_of
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.goodput import found_text, next_per_s, point_of
from splitserve.lab.run.journal import Journal, State
from splitserve.lab.stats.goodput import RatePoint, goodput

CAPACITY = "capacity"
"""The series that looks for it."""


class Rates:
    """Of a study, as far as it has come: all that is read is its journal and its records."""

    def __init__(
        self, study: Study, runs: Sequence[Run], journal: Journal, folder: StudyFolder
    ) -> None:
        self._study = study
        self._runs = runs
        self._journal = journal
        self._folder = folder

    def of(self, run: Run) -> float | None:
        """Requests a second; None for a closed loop.

        Raises UnavailableError when a share is asked for of a capacity that was not found, and for
        a step of a search that is over.
        """
        if run.phase != GOODPUT:
            return rate_of(run.cell, self._study, self._capacity(run.cell))
        rate = self._next(run)
        if rate is None:
            raise UnavailableError(f"run {run.number}: the search of {run.arm} is over")
        return rate

    def why_over(self, run: Run) -> str | None:
        """Why ``run``, a step of a search, is not made; None where it is."""
        earlier = [one.number for one in self._steps(run)]
        if not all(map(self._journal.is_accepted, earlier)):
            return f"a step before it does not count, and the rate of {run.arm} follows from it"
        if self._next(run) is not None:
            return None
        return f"the search is over: {found_text(self._points(run), self._study.slo.attainment)}"

    def _next(self, run: Run) -> float | None:
        cell = target_cell(self._study)
        start = rate_of(cell, self._study, self._capacity(cell))
        start_per_s = self._study.target.load if start is None else start
        return next_per_s(start_per_s, self._points(run), self._study.slo.attainment)

    def _points(self, run: Run) -> list[RatePoint]:
        slo = measures_of(self._study, run.cell).slo
        found = []
        for step in self._steps(run):
            entry = self._journal.last(step.number)
            if entry is not None and entry.state is State.ACCEPTED and entry.rate_per_s is not None:
                records = self._folder.read_records(step.number)
                found.append(point_of(entry.rate_per_s, records, slo))
        return [point for point in found if point is not None]

    def _steps(self, run: Run) -> list[Run]:
        """Those of the same search before ``run``."""
        search = (run.phase, run.series, run.arm)
        return [
            one
            for one in self._runs
            if (one.phase, one.series, one.arm) == search and one.number < run.number
        ]

    def _capacity(self, cell: Cell) -> float | None:
        if not is_share(cell, self._study):
            return None
        rungs = [
            one
            for one in self._runs
            if one.series == CAPACITY and self._journal.is_accepted(one.number)
        ]
        records = {one.number: self._folder.read_records(one.number) for one in rungs}
        return capacity(self._study, rungs, records)


def rate_of(cell: Cell, study: Study, capacity_per_s: float | None) -> float | None:
    """Requests a second; None for a closed loop.

    A ladder's own rungs and absolute loads stand as planned. Raises UnavailableError when a share
    is asked for of a capacity that was not found.
    """
    if not is_share(cell, study):
        return cell.rate_per_s
    if capacity_per_s is None:
        raise UnavailableError(
            f"{cell.text()}: the capacity of the single arm was not found; its SLO is missed at "
            "every rate tried: lower target.capacity_guess_per_s, or give target.load in per_s"
        )
    return study.target.load * capacity_per_s


def is_share(cell: Cell, study: Study) -> bool:
    return study.target.load_unit == OF_CAPACITY and cell.load.endswith("of capacity")


def capacity(
    study: Study, runs: Sequence[Run], records: Mapping[int, Sequence[RequestRecord]]
) -> float | None:
    """The greatest rate of the ladder that the single arm is shown to carry with its SLO kept.

    ``records`` by the number of each rung that counts. None when it carries none of them.
    """
    points = []
    for run in runs:
        found = figures(records[run.number], measures_of(study, run.cell))
        if found is not None and run.cell.rate_per_s is not None:
            points.append(RatePoint(run.cell.rate_per_s, found.attained))
    if not points:
        return None
    # A ladder looks for a load to work at, and proves nothing: the likelier half will do.
    return goodput(points, study.slo.attainment, confidence=0.5).carried or None
