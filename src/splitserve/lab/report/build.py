"""The report of a study, from what it gave. Pure."""

from collections.abc import Callable
from typing import Final

from splitserve.lab.report.advice import advise
from splitserve.lab.report.blocks import Section
from splitserve.lab.report.model import StudyReport
from splitserve.lab.report.results import StudyResults
from splitserve.lab.report.rows import row_of
from splitserve.lab.report.sections import (
    conclusions,
    definitions,
    effects,
    faults,
    goodput,
    latency,
    opening,
    phases,
    rollback,
    series,
    setup,
    trust,
)

SECTIONS: Final[tuple[Callable[[StudyResults], Section], ...]] = (
    opening.verdict,
    opening.header,
    opening.question,
    setup.configurations,
    setup.fixed,
    setup.methods,
    latency.results_table,
    effects.differences,
    phases.attribution,
    series.axes,
    series.layouts,
    goodput.goodput,
    conclusions.readings,
    faults.faults,
    rollback.rollback,
    trust.validity,
    trust.environment,
    definitions.definitions,
)
"""In the order they are read and numbered."""


def report_of(results: StudyResults) -> StudyReport:
    """Everything the report shows. ``results`` may be of a study that was cut short."""
    return StudyReport(
        study=results.plan.study.study.id,
        digest=results.plan.digest,
        made_at=results.made_at.isoformat(timespec="seconds"),
        verdict=results.verdict,
        sections=tuple(section(results) for section in SECTIONS),
        advice=advise(results),
        runs=tuple(row_of(one, results.slo) for one in results.runs),
    )
