"""What is repeated as a whole: a pair, or a run that stands alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from splitserve.lab.plan.phases import GOODPUT, Run


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
        """For people: ``target, pair 3``, ``baseline, idle`` or ``goodput, step 2``."""
        first = self.runs[0]
        name = self.phase if self.phase == self.series else f"{self.phase}, {self.series}"
        if self.phase == GOODPUT:
            return f"{name}, step {first.position + 1}"
        return name if first.pair is None else f"{name}, pair {first.pair + 1}"


def units_of(runs: Sequence[Run]) -> tuple[Unit, ...]:
    """In the order of the plan, in which the runs of a pair follow each other."""
    grouped = groupby(runs, key=_together)
    return tuple(Unit(tuple(group)) for _, group in grouped)


def _together(run: Run) -> tuple[str, str, int]:
    return (run.phase, run.series, -run.number if run.pair is None else run.pair)
