"""Files are whole or not there."""

from pathlib import Path

import pytest
from made_results import results

from splitserve.errors import UnavailableError
from splitserve.lab.report.build import report_of
from splitserve.lab.report.write import write_report

NAMES = {"report.html", "report.md", "report.json", "runs.csv", "junit.xml"}


def test_all_forms_are_written_into_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "report"
    written = write_report(report_of(results()), folder)
    assert {path.name for path in written} == NAMES
    assert {path.name for path in folder.iterdir()} == NAMES
    assert all(path.stat().st_size > 100 for path in written)


def test_the_same_study_gives_the_same_bytes(tmp_path: Path) -> None:
    first = write_report(report_of(results()), tmp_path / "a")
    second = write_report(report_of(results()), tmp_path / "b")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_file_that_cannot_be_replaced_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "report.html" / "inside").mkdir(parents=True)
    with pytest.raises(UnavailableError, match=r"report\.html"):
        write_report(report_of(results()), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == NAMES
