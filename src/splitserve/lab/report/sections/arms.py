"""Which runs stand for which row of the target cell."""

from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.samples import accepted, of_series, series_of

TARGET = ("target", "target")
ROWS = "rows"


def at_target(results: StudyResults) -> list[tuple[str, list[RunResult]]]:
    """Single, each further row that was compared with it, and split; by name, in this order."""
    plan = results.plan
    others = dict.fromkeys(series_of(r) for r in accepted(results) if r.run.phase == ROWS)
    named = [(f"A: {plan.baseline.label}", of_series(results, TARGET, "A"))]
    named += [(series[1], of_series(results, series, "B")) for series in others]
    return [*named, (f"B: {plan.split.label}", of_series(results, TARGET, "B"))]
