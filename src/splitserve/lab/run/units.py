"""What is repeated as a whole: a pair, or a run that stands alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from splitserve.lab.plan.phases import Run

NOT_DONE: Final = {
    "goodput": "the search for the highest rate is not made by this version",
    "faults": "faults are not brought about by this version",
}
"""Phases that stand in a plan and are left out, and what is said of it."""


@dataclass(frozen=True, slots=True)
class Unit:
    """``runs`` in order, which count together or not at all."""

    runs: tuple[Run, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(run.number for run in self.runs)

    @property
    def phase(self) -> str:
        return self.runs[0].phase

    @property
    def series(self) -> str:
        return self.runs[0].series

    @property
    def seconds(self) -> float:
        """An estimate."""
        return sum(run.seconds for run in self.runs)

    def text(self) -> str:
        """For people: ``target, pair 3`` or ``baseline, idle``."""
        pair = self.runs[0].pair
        name = self.phase if self.phase == self.series else f"{self.phase}, {self.series}"
        return name if pair is None else f"{name}, pair {pair + 1}"


def units_of(runs: Sequence[Run]) -> tuple[Unit, ...]:
    """In the order of the plan, in which the runs of a pair follow each other."""
    grouped = groupby(runs, key=_together)
    return tuple(Unit(tuple(group)) for _, group in grouped)


def _together(run: Run) -> tuple[str, str, int]:
    return (run.phase, run.series, -run.number if run.pair is None else run.pair)
