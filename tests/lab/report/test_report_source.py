"""A study's folder, read back as results."""

from pathlib import Path

import pytest
from made_results import MADE_AT, ran, results

from lab.verdict.made_study import study
from splitserve.errors import UnavailableError
from splitserve.lab.plan.phases import runs_of
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.report.build import report_of
from splitserve.lab.report.html import html
from splitserve.lab.report.results import StudyResults
from splitserve.lab.report.source import results_in
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.journal import Entry, Journal, State
from splitserve.lab.verdict.decide import decide


@pytest.fixture(scope="module")
def plan() -> Plan:
    made: StudyResults = results()
    return made.plan


def read(folder: StudyFolder, plan: Plan) -> StudyResults:
    evidence = study()
    return results_in(folder, plan, evidence, decide(evidence), made_at=MADE_AT, version="0.1.0")


def journal_of(folder: StudyFolder, *entries: tuple[int, int, State, str]) -> None:
    journal = Journal(folder.journal_path)
    for number, attempt, state, reason in entries:
        place = f"runs/{number}.void-{attempt}" if state is State.VOID else ""
        journal.add(
            Entry(
                number=number,
                attempt=attempt,
                state=state,
                at="2026-11-30T08:00:00+00:00",
                reason=reason,
                rate_per_s=2.0,
                folder=place,
            )
        )


def test_a_study_that_was_never_begun_is_all_planned(tmp_path: Path, plan: Plan) -> None:
    found = read(StudyFolder(tmp_path), plan)
    assert {one.state for one in found.runs} == {State.PLANNED}
    assert len(found.runs) == len(runs_of(plan))
    assert found.configs is None


def test_every_attempt_is_there_with_what_came_of_it(tmp_path: Path, plan: Plan) -> None:
    folder = StudyFolder(tmp_path)
    journal_of(
        folder,
        (1, 0, State.PLANNED, ""),
        (1, 1, State.STARTED, ""),
        (1, 1, State.VOID, "the server died"),
        (1, 2, State.STARTED, ""),
        (1, 2, State.ACCEPTED, ""),
        (2, 1, State.STARTED, ""),
    )
    records = list(ran(runs_of(plan)[0]).records)
    folder.write_records(1, records)
    sides = {
        "before": {"environment": {"driver": "1"}, "metrics": {}},
        "after": {"environment": {"driver": "2"}, "metrics": {}},
    }
    folder.write_json("runs/1/server.json", sides)
    first, second, cut = read(folder, plan).runs[:3]
    assert (first.state, first.attempt, first.reason) == (State.VOID, 1, "the server died")
    assert first.records == ()
    assert (second.state, second.attempt, second.rate_per_s) == (State.ACCEPTED, 2, 2.0)
    assert second.records == tuple(records)
    assert (second.before, second.after) == ({"driver": "1"}, {"driver": "2"})
    assert cut.state is State.STARTED


def test_configurations_and_the_self_test_are_read_back(tmp_path: Path, plan: Plan) -> None:
    folder = StudyFolder(tmp_path)
    folder.write_json("arms/one.json", {"config": {"model.dtype": "bfloat16"}})
    folder.write_json("arms/split.json", {"config": {"model.dtype": "float16"}})
    folder.write_json("preflight.json", {"passed": True, "self_test": "78 of 78 forms"})
    found = read(folder, plan)
    assert found.configs == ({"model.dtype": "bfloat16"}, {"model.dtype": "float16"})
    page = html(report_of(found))
    assert "78 of 78 forms" in page
    assert "Confounders: 1" in page


def test_records_that_are_gone_are_named(tmp_path: Path, plan: Plan) -> None:
    folder = StudyFolder(tmp_path)
    journal_of(folder, (1, 1, State.ACCEPTED, ""))
    with pytest.raises(UnavailableError, match=r"runs/1/requests\.jsonl cannot be read"):
        read(folder, plan)
