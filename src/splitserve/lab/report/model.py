"""The whole report as values."""

from dataclasses import dataclass

from splitserve.lab.report.advice import Advice
from splitserve.lab.report.blocks import Section
from splitserve.lab.report.rows import RunRow
from splitserve.lab.verdict.outcome import Verdict


@dataclass(frozen=True, slots=True)
class StudyReport:
    """``sections`` in the order they are read; ``runs``: every attempt, voids too.

    ``made_at`` is a date with its zone, ISO 8601. ``digest`` is the plan's.
    """

    study: str
    digest: str
    made_at: str
    verdict: Verdict
    sections: tuple[Section, ...]
    advice: tuple[Advice, ...]
    runs: tuple[RunRow, ...]
