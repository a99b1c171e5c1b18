"""One report in five forms: the same verdict, the same clauses, the same figures in each."""

import csv
import html as plain_html
import io
import json as plain_json
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from made_results import results

from lab.verdict.made_study import RULES, study
from splitserve.lab.report.blocks import Table
from splitserve.lab.report.build import report_of
from splitserve.lab.report.figure import Figure
from splitserve.lab.report.html import html
from splitserve.lab.report.json_form import json
from splitserve.lab.report.junit import junit
from splitserve.lab.report.markdown import markdown, safe
from splitserve.lab.report.model import StudyReport
from splitserve.lab.report.rows import RunRow
from splitserve.lab.report.runs_csv import runs_csv
from splitserve.lab.report.sections.opening import HEADLINES
from splitserve.lab.verdict.evidence import Evidence, Handoffs

STUDIES = {
    "adopt": study(),
    "slow hand-off": study(handoffs=Handoffs(p95_s=(0.5,) * 4, failed=()), rollback=None),
    "nothing": Evidence(rules=RULES),
}


@pytest.fixture(params=STUDIES, scope="module")
def report(request: pytest.FixtureRequest) -> StudyReport:
    return report_of(results(STUDIES[request.param]))


def figures(report: StudyReport) -> Iterator[Figure]:
    for section in report.sections:
        for block in section.blocks:
            if isinstance(block, Table):
                yield from (c for row in block.rows for c in row if isinstance(c, Figure))


def told(page: str) -> str:
    """The text of a page, on one line."""
    return " ".join(plain_html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_every_form_has_the_verdict_and_its_reason(report: StudyReport) -> None:
    verdict, page, text = report.verdict, told(html(report)), markdown(report)
    written = plain_json.loads(json(report))
    root = ET.fromstring(junit(report).encode())
    properties = {one.attrib["name"]: one.attrib["value"] for one in root.iter("property")}
    assert HEADLINES[verdict.outcome] in page
    assert HEADLINES[verdict.outcome] in text
    assert written["report"]["verdict"]["outcome"] == verdict.outcome == properties["verdict"]
    assert written["exit_code"] == verdict.exit_code == int(properties["exit_code"])
    assert verdict.reason in page
    assert safe(verdict.reason) in text
    assert written["report"]["verdict"]["reason"] == verdict.reason == properties["reason"]
    assert written["report"]["digest"] == report.digest == properties["plan"]


def test_every_form_has_every_clause_with_its_status(report: StudyReport) -> None:
    page, text = told(html(report)), markdown(report)
    listed = plain_json.loads(json(report))["report"]["verdict"]["clauses"]
    cases = ET.fromstring(junit(report).encode()).find("testsuite")
    assert cases is not None
    for clause, as_json, case in zip(
        report.verdict.clauses, listed, cases.iter("testcase"), strict=True
    ):
        assert (as_json["name"], as_json["status"]) == (clause.name, clause.status.value)
        assert as_json["evidence"] == list(clause.evidence)
        failure = case.find("failure")
        assert case.attrib["name"] == clause.name
        assert ("holds" if failure is None else failure.attrib["message"]) == clause.status.value
        assert case.findtext("system-out") == "; ".join(clause.evidence)
        for sentence in clause.evidence:
            assert sentence in page
            assert safe(sentence) in text


def test_every_figure_is_the_same_in_every_form(report: StudyReport) -> None:
    page, text = told(html(report)), markdown(report)
    values = list(_json_figures(plain_json.loads(json(report))))
    shown = list(figures(report))
    assert len(values) == len(shown)
    for figure, value in zip(shown, values, strict=True):
        assert figure.text in page
        assert figure.detail in page
        assert safe(str(figure)) in text
        assert (value["unit"], value["n"]) == (figure.unit, figure.n)
        number = value["value"]
        assert (None if number is None else float(number)) == figure.value


def test_every_attempt_is_the_same_in_rows_and_in_json(report: StudyReport) -> None:
    rows = list(csv.DictReader(io.StringIO(runs_csv(report))))
    listed = plain_json.loads(json(report))["report"]["runs"]
    assert len(rows) == len(listed) == len(report.runs)
    for row, as_json, run in zip(rows, listed, report.runs, strict=True):
        for one in fields(RunRow):
            value = getattr(run, one.name)
            assert row[one.name] == ("" if value is None else str(value))
            assert as_json[one.name] == (str(value) if value == float("inf") else value)


def _json_figures(value: Any) -> Iterator[dict[str, Any]]:
    """Figures in tables, in the order of the sections."""
    for section in value["report"]["sections"]:
        for block in section["blocks"]:
            for row in block.get("rows", []) if block["kind"] == "table" else []:
                yield from (c for c in row if isinstance(c, dict) and c["kind"] == "figure")
