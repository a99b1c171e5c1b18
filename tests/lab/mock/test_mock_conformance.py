"""The client against every scripted stream, times apart: those are the self-test's to judge."""

import pytest

from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.mock.case import Case, script_of
from splitserve.lab.mock.conformance import (
    CaseResult,
    all_cases,
    faults_of,
    report_of,
    run_conformance,
    worst_error,
)
from splitserve.lab.mock.contents import content_cases
from splitserve.lab.mock.faults import LIMITS, fault_cases
from splitserve.lab.mock.forms import form_cases
from splitserve.lab.mock.script import Played

PATIENT = Limits(connect_s=10, first_s=10, gap_s=10, total_s=20)


@pytest.mark.parametrize(
    ("cases", "limits"),
    [(form_cases(), PATIENT), (content_cases(), PATIENT), (fault_cases(), LIMITS)],
    ids=["forms", "contents", "faults"],
)
async def test_the_client_reads_every_case_as_it_was_sent(
    cases: list[Case], limits: Limits
) -> None:
    results = await run_conformance(cases, limits, attempts=1)
    assert len(results) == len(cases) > 10
    assert {result.name: result.faults for result in results if not result.exact} == {}


def test_every_case_has_its_own_name_and_every_stream_outcome_has_a_case() -> None:
    names = [case.name for case in all_cases()]
    assert len(set(names)) == len(names)
    assert {case.outcome for case in all_cases()} == set(Outcome) - {Outcome.NEVER_SENT}


CASE = Case("two", script_of([b"a", b"b"]), Outcome.OK, tokens=((1, 1), (2, 1)), answer=1)
PLAYED = Played("two", 10.0, [10.0, 10.1, 10.2])


def record(first_s: float, second_s: float) -> RequestRecord:
    return RequestRecord(
        request_id="two",
        arm="mock",
        run="1",
        intended_s=0.0,
        sent_s=0.0,
        first_byte_s=None,
        events=[(first_s, 1), (second_s, 1)],
        ended_s=second_s,
        outcome=Outcome.TRUNCATED,
        counting=Counting.IDS,
        answer_s=first_s,
    )


def test_the_time_error_is_the_largest_and_a_token_before_its_send_is_worst() -> None:
    assert worst_error(CASE, record(0.1, 0.25), PLAYED, 10.0) == pytest.approx(0.05)
    assert worst_error(CASE, record(0.099, 0.25), PLAYED, 10.0) == pytest.approx(-0.001)


def test_a_wrong_reading_is_a_fault_in_words() -> None:
    faults = faults_of(CASE, record(0.1, 0.2))
    assert faults[0] == "outcome is truncated, not ok"
    assert "status is None, not 200" in faults


def test_a_case_passes_when_right_and_in_time() -> None:
    right = CaseResult("a", (), 0.0005, 1)
    late = CaseResult("b", (), 0.002, 3)
    early = CaseResult("c", (), -0.0001, 1)
    wrong = CaseResult("d", ("outcome is x",), 0.0, 1)
    assert [one.passed for one in (right, late, early, wrong)] == [True, False, False, False]
    report = report_of([right, late, early, wrong])
    assert "FAIL b (2.000 ms, attempt 3)" in report
    assert report.endswith("1 of 4 passed; largest time error 2.000 ms")
