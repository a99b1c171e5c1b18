"""Plots that are drawn only where there is something to draw; else one sentence says why not."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from made_results import results

from lab.verdict.made_study import RULES, pairs, run, study
from splitserve.lab.load.record import Outcome, RequestRecord
from splitserve.lab.report.blocks import Text
from splitserve.lab.report.plots import Funnel, Happenings, Heat, Transfers
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.sections.cells import attainment_by_cell
from splitserve.lab.report.sections.mishaps import mishaps
from splitserve.lab.report.sections.moved import transfers
from splitserve.lab.report.sections.own_noise import funnels
from splitserve.lab.verdict.evidence import Evidence


@pytest.fixture(scope="module")
def made() -> StudyResults:
    found: StudyResults = results()
    return found


def test_the_map_has_the_target_and_each_cell_of_the_axes(made: StudyResults) -> None:
    found = attainment_by_cell(made)
    assert isinstance(found, Heat)
    names = [(tile.row, tile.column, tile.n) for tile in found.panels[0][1]]
    assert names == [
        ("S, 64 tokens", "2/s", 120),
        ("M, 256 tokens", "2/s", 120),
        ("L, 1024 tokens", "4 under way", 120),
        ("L, 1024 tokens", "2/s", 160),
    ]
    single, split = (dict.fromkeys(t.share for t in tiles) for _, tiles in found.panels)
    assert max(single) < 0.5 < min(split)


def test_one_cell_is_no_map_and_says_what_makes_one(made: StudyResults) -> None:
    target = tuple(one for one in made.runs if one.run.phase == "target")
    found = attainment_by_cell(replace(made, runs=target))
    assert isinstance(found, Text)
    assert "concurrency" in found.says


def test_errors_and_retries_stand_at_their_time_by_reason(made: StudyResults) -> None:
    found = mishaps(changed(made, 3, outcome=Outcome.HTTP_ERROR, status=503, ended_s=7.5))
    assert isinstance(found, Happenings)
    assert dict(found.rows)["A: one: http_error 503"] == (7.5,) * 4
    retried = mishaps(changed(made, 3, metrics={"retry_ms": 12.0}, ended_s=2.5))
    assert isinstance(retried, Happenings)
    assert dict(retried.rows)["B: split: retried by gateway"] == (2.5,) * 4


def test_without_an_error_there_is_a_sentence(made: StudyResults) -> None:
    assert isinstance(mishaps(made), Text)


def test_the_funnel_narrows_with_the_pairs() -> None:
    noisy = tuple(
        pair for wait in (0.9, 1.2, 1.1, 0.8) for pair in pairs(b=run(ttft_s=wait), count=1)
    )
    found = funnels(results(study(control=noisy)))
    drawn = [one for one in found if isinstance(one, Funnel)]
    ttft = next(one for one in drawn if "TTFT" in one.title)
    assert [point.pairs for point in ttft.points] == [1, 2, 3, 4]
    widths = [point.high - point.low for point in ttft.points]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == pytest.approx(2 * widths[3])


def test_without_noise_to_see_there_is_no_funnel() -> None:
    (bare,) = funnels(results(Evidence(rules=RULES)))
    assert isinstance(bare, Text)


def test_handoffs_are_fitted_against_the_bytes_that_they_moved(made: StudyResults) -> None:
    def told(record: RequestRecord, at: int) -> RequestRecord:
        tokens = 100 * (1 + at % 3)
        took_ms = 2.0 + tokens / 100
        return msgspec.structs.replace(
            record, prompt_tokens=tokens, metrics={"kv_handoff_upper_ms": took_ms}
        )

    def moved(one: RunResult) -> RunResult:
        records = tuple(told(record, at) for at, record in enumerate(one.records))
        return replace(one, records=records, kv_bytes=1e4 * sum(_tokens(r) for r in records))

    found = transfers(replace(made, runs=tuple(map(moved, made.runs))))
    assert isinstance(found, Transfers)
    assert len(found.points) == 160
    assert {round(size) for size, _ in found.points} == {1_000_000, 2_000_000, 3_000_000}
    assert found.fit is not None
    assert found.fit.start_s == pytest.approx(0.002)
    assert found.fit.bytes_per_s == pytest.approx(1e9)


def _tokens(record: RequestRecord) -> int:
    return record.prompt_tokens or 0


def test_untold_handoffs_are_not_drawn(made: StudyResults) -> None:
    assert isinstance(transfers(made), Text)


def changed(made: StudyResults, at: int, **values: Any) -> StudyResults:
    """Request ``at`` of every run with other values."""

    def run_with(one: RunResult) -> RunResult:
        if not one.records:
            return one
        record = msgspec.structs.replace(one.records[at], **values)
        return replace(one, records=(*one.records[:at], record, *one.records[at + 1 :]))

    return replace(made, runs=tuple(map(run_with, made.runs)))
