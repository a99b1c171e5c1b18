"""The rate of a run: what the plan says, or a share of the capacity that was measured."""

from collections.abc import Mapping, Sequence

from splitserve.errors import UnavailableError
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.plan.phases import Cell, Run
from splitserve.lab.plan.study import OF_CAPACITY, Study
from splitserve.lab.run.figures import figures, measures_of
from splitserve.lab.stats.goodput import RatePoint, goodput

CAPACITY = "capacity"
"""The series that looks for it."""


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
