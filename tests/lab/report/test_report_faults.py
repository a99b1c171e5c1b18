"""Section "Fault and retry visibility"."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_results import MADE_AT, ran, results

from lab.verdict.made_study import study
from splitserve.errors import ConfigError
from splitserve.lab.plan.phases import runs_of
from splitserve.lab.report.blocks import Section, Table, Text
from splitserve.lab.report.figure import Figure
from splitserve.lab.report.results import StudyResults
from splitserve.lab.report.sections.faults import faults
from splitserve.lab.report.source import results_in
from splitserve.lab.run.faults.seen import FaultSeen, Period
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.journal import Entry, Journal, State
from splitserve.lab.verdict.decide import decide

SEEN = FaultSeen(
    fault="kill_prefill",
    what="prefill-0 was killed (SIGKILL)",
    began_s=10.0,
    whole_s=13.5,
    first_good_s=0.25,
    periods=(
        Period("before", 20, 20, {"ok": 20}),
        Period("under way when it struck", 2, 1, {"inband_error": 1, "ok": 1}),
        Period("due while it lasted", 0, 0, {}),
        Period("due afterwards", 18, 18, {"ok": 18}),
    ),
    told=1,
    silent=0,
    errors={"inband_error: the <prefill> worker was lost": 1},
    counters={'splitserve_fallback_total{reason="no_prefill",rung="local"}': 7},
)


def with_fault(seen: FaultSeen | None, **changes: Any) -> StudyResults:
    made: StudyResults = results()
    runs = tuple(
        replace(one, fault=seen, **changes) if one.run.phase == "faults" else one
        for one in made.runs
    )
    return replace(made, runs=runs)


def rows(section: Section, caption: str) -> dict[str, tuple[Any, ...]]:
    found = next(b for b in section.blocks if isinstance(b, Table) and caption in b.caption)
    return {str(row[0]): row[1:] for row in found.rows}


def said(section: Section) -> str:
    return " ".join(block.says for block in section.blocks if isinstance(block, Text))


def value(cell: Any) -> float | None:
    assert isinstance(cell, Figure)
    return cell.value


def test_a_fault_stands_with_its_times_and_its_failures() -> None:
    section = faults(with_fault(SEEN))
    what, first, whole, told, silent = rows(section, "brought about once each")["kill_prefill"]
    assert what == "prefill-0 was killed (SIGKILL)"
    assert (value(first), value(whole)) == (0.25, 3.5)
    assert (told, silent) == ("1 requests", "0 requests")
    assert "Every failure was told to its client: 1 requests." in said(section)


def test_requests_are_told_by_period_and_empty_periods_are_left_out() -> None:
    periods = rows(faults(with_fault(SEEN)), "by when they were due")
    assert len(periods) == 3
    share, ended = periods["kill_prefill: under way when it struck"]
    assert value(share) == 50
    assert ended == "inband_error: 1 requests; ok: 1 requests"


def test_retries_stand_with_the_reasons_that_the_gateway_counted() -> None:
    section = faults(with_fault(SEEN))
    (counted,) = rows(section, "What the gateway counted").values()
    assert counted[0].startswith("splitserve_fallback_total")
    assert counted[1] == "7 times"
    (error,) = rows(section, "Errors that clients").values()
    assert error == ("inband_error: the <prefill> worker was lost", "1 requests")


def test_what_was_not_seen_is_not_made_up() -> None:
    nothing = replace_seen(whole_s=None, first_good_s=None, counters={}, errors={}, told=0)
    section = faults(with_fault(nothing))
    _, first, whole, *_ = rows(section, "brought about once each")["kill_prefill"]
    assert (first, whole) == ("none was due, or none was good", "not seen in the run")
    assert "retries and their reasons are not visible" in said(section)
    assert "No request failed, and every answer" in said(section)


def test_failures_in_silence_must_not_be_overlooked() -> None:
    section = faults(with_fault(replace_seen(silent=3)))
    strong = [b.says for b in section.blocks if isinstance(b, Text) and b.strong]
    assert strong == ["Requests failed and were not told so: 3 under kill_prefill."]


def test_faults_that_were_left_out_say_why() -> None:
    section = faults(with_fault(None, state=State.SKIPPED, reason="there is no link to slow"))
    assert rows(section, "Not brought about") == {"kill_prefill": ("there is no link to slow",)}


def test_reasons_at_the_target_are_told_without_any_fault() -> None:
    section = faults(with_fault(None))
    assert "No fault was brought about" in said(section)
    assert "No request failed at the target cell." in said(section)


def test_a_fault_is_read_back_from_its_run(tmp_path: Path) -> None:
    folder, plan = StudyFolder(tmp_path), with_fault(None).plan
    run = next(one for one in runs_of(plan) if one.phase == "faults")
    entry = Entry(number=run.number, attempt=1, state=State.ACCEPTED, at="now")
    Journal(folder.journal_path).add(entry)
    folder.write_records(run.number, list(ran(run).records))
    folder.write_json(f"runs/{run.number}/fault.json", SEEN)
    evidence = study()

    def read() -> StudyResults:
        return results_in(
            folder, plan, evidence, decide(evidence), made_at=MADE_AT, version="0.1.0"
        )

    (found,) = (one.fault for one in read().runs if one.run.number == run.number)
    assert found == SEEN
    folder.write_json(f"runs/{run.number}/fault.json", {"schema": "fault/1"})
    with pytest.raises(ConfigError, match=r"fault\.json tells of no fault"):
        read()


def replace_seen(**changes: Any) -> FaultSeen:
    return msgspec.structs.replace(SEEN, **changes)
