"""What the patterns mean, and the guide's advice answered from the measurements."""

from collections.abc import Mapping
from typing import Final

from splitserve.lab.report.advice import Advice, advise
from splitserve.lab.report.blocks import Cell, Points, Section, Table
from splitserve.lab.report.results import StudyResults
from splitserve.lab.verdict.outcome import Heard

TRIGGERED: Final[Mapping[bool | None, str]] = {True: "yes", False: "no", None: "not measured"}


def readings(results: StudyResults) -> Section:
    """Readings that were triggered, one row of advice per symptom, and all other readings."""
    columns = ("reading", "triggered", "what it says", "what to do next", "consequence")
    heard = results.verdict.readings
    told = tuple(_reading(one) for one in heard if one.triggered)
    others = tuple(_reading(one) for one in heard if not one.triggered)
    read = Table("Readings that were triggered", columns, told)
    silent = Table("Readings not triggered, or not measured", columns, others, folded=True)
    advice = Table(
        "Advice, from the measurements",
        ("situation", "advice of the guide", "measured here", "is it so", "what it means here"),
        tuple(_advice(one) for one in advise(results)),
        "Each row is on its own. The verdict is in section 1, and is not a sum of these rows.",
    )
    return Section("Readings and advice", (read, advice, silent))


def _reading(one: Heard) -> tuple[str, ...]:
    return one.name, TRIGGERED[one.triggered], one.says, one.action, one.consequence.value


def _advice(one: Advice) -> tuple[Cell, ...]:
    return one.symptom, one.guide, Points(one.measured), TRIGGERED[one.present], one.here
