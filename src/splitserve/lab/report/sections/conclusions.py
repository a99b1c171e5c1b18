"""What the patterns mean, and the guide's advice answered from the measurements."""

from collections.abc import Mapping
from typing import Final

from splitserve.lab.report.advice import Advice, advise
from splitserve.lab.report.blocks import Section, Table
from splitserve.lab.report.results import StudyResults
from splitserve.lab.verdict.outcome import Heard

TRIGGERED: Final[Mapping[bool | None, str]] = {True: "yes", False: "no", None: "not measured"}


def readings(results: StudyResults) -> Section:
    """All readings, those triggered first; then one row of advice per symptom."""
    heard = sorted(results.verdict.readings, key=lambda one: one.triggered is not True)
    read = Table(
        "Readings",
        ("reading", "triggered", "says", "next", "consequence"),
        tuple(_reading(one) for one in heard),
    )
    advice = Table(
        "Advice, from the measurements",
        ("situation", "advice of the guide", "measured", "is it so", "here"),
        tuple(_advice(one) for one in advise(results)),
        "Each row is on its own. The verdict is in section 1, and is not a sum of these rows.",
    )
    return Section("Readings and advice", (read, advice))


def _reading(one: Heard) -> tuple[str, ...]:
    return one.name, TRIGGERED[one.triggered], one.says, one.action, one.consequence.value


def _advice(one: Advice) -> tuple[str, ...]:
    return one.symptom, one.guide, one.measured, TRIGGERED[one.present], one.here
