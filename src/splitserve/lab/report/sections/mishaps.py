"""When requests failed or were tried again, by reason."""

from collections.abc import Sequence
from typing import Final

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.outcomes import standing
from splitserve.lab.report import samples
from splitserve.lab.report.blocks import Text
from splitserve.lab.report.plots import Happenings
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.sections.arms import at_target

RETRIED: Final = "retry_ms"
"""In the metrics of an answer: what a gateway lost to attempts that failed."""

_MOST: Final = 12


def mishaps(results: StudyResults) -> Happenings | Text:
    """At the target cell, all runs of an arm laid over each other."""
    arms = at_target(results)
    rows = [
        (f"{name}: {reason}", times)
        for name, runs in arms
        for reason, times in _by_reason(runs).items()
    ]
    if not rows:
        return Text("No plot of errors over time: none failed and no retry was told.")
    ended = [record.ended_s for _, runs in arms for run in runs for record in samples.asked(run)]
    most = sorted(rows, key=lambda row: -len(row[1]))[:_MOST]
    listed = tuple((name, tuple(sorted(times))) for name, times in most)
    return Happenings("Errors and retries over time", listed, max(ended))


def _by_reason(runs: Sequence[RunResult]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for run in runs:
        for record in samples.asked(run):
            for reason in _reasons(record):
                found.setdefault(reason, []).append(record.ended_s)
    return found


def _reasons(record: RequestRecord) -> list[str]:
    reasons = []
    if standing(record).failed:
        reasons.append(f"{record.outcome.value} {record.status or ''}".strip())
    if (record.metrics or {}).get(RETRIED, 0.0) > 0:
        reasons.append("retried by gateway")
    return reasons
