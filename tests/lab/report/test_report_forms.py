"""The forms for machines and for repositories hold the same values."""

import csv
import io
import json as plain_json
import math
from dataclasses import replace
from xml.etree import ElementTree as ET

from made_results import lost, results

from lab.verdict.made_study import RULES, pairs, run, study
from splitserve.lab.report.blocks import Section, Table
from splitserve.lab.report.build import report_of
from splitserve.lab.report.json_form import json
from splitserve.lab.report.junit import junit
from splitserve.lab.report.markdown import markdown, safe
from splitserve.lab.report.runs_csv import runs_csv
from splitserve.lab.report.sections.definitions import DEFINITIONS
from splitserve.lab.verdict.evidence import Evidence, Handoffs
from splitserve.lab.verdict.outcome import Status


def test_markdown_has_every_section_and_tables_as_wide_as_their_heads() -> None:
    written = markdown(report_of(results()))
    assert next(line for line in written.splitlines() if line.startswith("## ")) == "## 1 Verdict"
    assert written.count("\n## ") == 18
    width = 0
    for line in written.splitlines():
        bars = line.replace("\\|", "").count("|")
        assert bars in {0, width} or width == 0
        width = bars


def test_markdown_acts_on_nothing_that_others_wrote() -> None:
    bad = "<img src=x>\n# head | [a](b) `c` *d* &lt;"
    told = safe(bad)
    assert "\n" not in told
    for character in "<>|[]`*#":
        assert character not in told.replace(f"\\{character}", "")
    assert bad not in markdown(report_of(results(self_test=bad)))


def test_an_arms_name_cannot_break_the_head_of_a_markdown_table() -> None:
    report = report_of(results())
    table = Table("", ("what", "a|b"), (("x", "y"),))
    written = markdown(replace(report, sections=(Section("s", (table,)),)))
    assert r"| what | a\|b |" in written


def test_json_has_everything_and_no_number_that_json_lacks() -> None:
    infinite = study(target=pairs(b=run(tail_itl_s=math.inf)))
    written = plain_json.loads(
        json(report_of(results(infinite))), parse_constant=lambda name: 1 / 0
    )
    assert written["schema"] == "report/2"
    assert written["definitions"] == DEFINITIONS
    assert written["exit_code"] == report_of(results(infinite)).verdict.exit_code
    report = written["report"]
    assert len(report["sections"]) == 18
    assert len(report["advice"]) == 7
    assert "inf" in plain_json.dumps(report["sections"][7])
    kinds = {block["kind"] for section in report["sections"] for block in section["blocks"]}
    assert {"text", "table", "ecdf", "forest", "scatter", "timeline", "waterfall"} <= kinds


def test_csv_has_a_row_for_every_attempt_and_says_what_is_refused() -> None:
    made = results()
    rows = list(csv.DictReader(io.StringIO(runs_csv(report_of(made)))))
    assert len(rows) == len(made.runs)
    assert rows[0]["state"] == "void"
    assert rows[0]["reason"] == "the server died <b>here</b>"
    assert rows[0]["ttft_p50_s"] == ""
    assert rows[1]["ttft_p95_s"] == "refused"
    assert 0.2 < float(rows[1]["ttft_p50_s"]) < 0.6


def test_csv_writes_failures_as_infinite_and_no_formula() -> None:
    made = results()
    cut = replace(made.runs[1], records=lost(made.runs[1].records), reason="=1+1")
    row = next(csv.DictReader(io.StringIO(runs_csv(report_of(replace(made, runs=(cut,)))))))
    assert row["ttft_p50_s"] == "inf"
    assert row["failed"] == row["requests"] == "40"
    assert row["reason"] == "'=1+1"


def test_junit_has_a_case_per_clause_and_reading() -> None:
    report = report_of(results())
    root = ET.fromstring(junit(report).encode())
    clauses, readings = root.findall("testsuite")
    assert [c.attrib["name"] for c in clauses.iter("testcase")] == [
        c.name for c in report.verdict.clauses
    ]
    assert len(readings) == len(report.verdict.readings)
    assert clauses.attrib["failures"] == "0"
    skipped = sum(r.triggered is None for r in report.verdict.readings)
    assert readings.attrib["skipped"] == str(skipped)
    assert len(readings.findall("testcase/skipped")) == skipped


def test_junit_fails_where_a_clause_does_not_hold_or_a_reading_forbids() -> None:
    slow = study(handoffs=Handoffs(p95_s=(0.5,) * 4, failed=()), rollback=None)
    report = report_of(results(slow))
    root = ET.fromstring(junit(report).encode())
    failed = {case.attrib["name"] for case in root.iter("testcase") if case.findall("failure")}
    lacking = {c.name for c in report.verdict.clauses if c.status is not Status.HOLDS}
    assert failed == lacking | {"R8"}
    assert {"rollback", "guard_kv"} <= failed


def test_junit_of_a_study_without_runs_is_whole() -> None:
    report = report_of(results(Evidence(rules=RULES), runs=()))
    assert ET.fromstring(junit(report).encode()).tag == "testsuites"
