"""Clauses and readings as test cases, for a pipeline that shows such files."""

from splitserve.lab.report.escape import escaped
from splitserve.lab.report.model import StudyReport
from splitserve.lab.verdict.outcome import Clause, Consequence, Heard, Status

_MENDING = (Consequence.INVALIDATES, Consequence.BLOCKS)


def junit(report: StudyReport) -> str:
    """A clause fails when it does not hold, a reading when it is triggered and forbids adoption;
    a reading whose measurement is missing is skipped."""
    clauses = [_clause(one) for one in report.verdict.clauses]
    readings = [_reading(one) for one in report.verdict.readings]
    suites = _suite("clauses", clauses, _verdict(report)) + _suite("readings", readings)
    name = escaped(report.study)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="{name}">{suites}</testsuites>\n'
    )


def _verdict(report: StudyReport) -> str:
    """What a pipeline may want to show besides the cases."""
    told = {
        "verdict": report.verdict.outcome.value,
        "reason": report.verdict.reason,
        "exit_code": str(report.verdict.exit_code),
        "plan": report.digest,
    }
    listed = "".join(
        f'<property name="{name}" value="{escaped(value)}"/>' for name, value in told.items()
    )
    return f"<properties>{listed}</properties>"


def _suite(name: str, cases: list[tuple[str, str]], properties: str = "") -> str:
    failures = sum(inner.startswith("<failure") for _, inner in cases)
    skipped = sum(inner.startswith("<skipped") for _, inner in cases)
    written = "".join(
        f'<testcase classname="lab.{name}" name="{escaped(case)}">{inner}</testcase>'
        for case, inner in cases
    )
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" skipped="{skipped}"'
    return f'<testsuite name="{name}" {counts}>{properties}{written}</testsuite>'


def _clause(clause: Clause) -> tuple[str, str]:
    told = f"<system-out>{escaped('; '.join(clause.evidence))}</system-out>"
    if clause.status is Status.HOLDS:
        return clause.name, told
    lacking = escaped("; ".join(clause.lacking))
    return clause.name, f'<failure message="{clause.status.value}">{lacking}</failure>{told}'


def _reading(heard: Heard) -> tuple[str, str]:
    says = escaped(f"{heard.says} {heard.action}")
    if heard.triggered is None:
        return heard.name, '<skipped message="not measured"/>'
    if heard.triggered and heard.consequence in _MENDING:
        return heard.name, f'<failure message="{heard.consequence.value}">{says}</failure>'
    triggered = "triggered" if heard.triggered else "not triggered"
    return heard.name, f"<system-out>{triggered}: {says}</system-out>"
