"""What single sections add to the numbers."""

from dataclasses import replace

import msgspec
import pytest
from made_results import results

from lab.verdict.made_study import study
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.report.blocks import Section, Table, Text
from splitserve.lab.report.figure import Figure
from splitserve.lab.report.plots import Scatter, Timeline, Waterfall
from splitserve.lab.report.sections import latency, phases, rollback, series, setup, trust
from splitserve.lab.run.journal import State


def table(section: Section, caption: str) -> dict[str, tuple[str | Figure, ...]]:
    found = next(b for b in section.blocks if isinstance(b, Table) and caption in b.caption)
    return {str(row[0]): row[1:] for row in found.rows}


def figure(cell: str | Figure) -> Figure:
    assert isinstance(cell, Figure)
    return cell


def said(section: Section) -> str:
    return " ".join(block.says for block in section.blocks if isinstance(block, Text))


def test_the_parts_of_a_change_of_ttft_add_up() -> None:
    rows = table(phases.attribution(results()), "Change of TTFT")
    parts = [figure(row[0]).value for name, row in rows.items() if name != "TTFT"]
    whole = figure(rows["TTFT"][0])
    assert sum(part or 0.0 for part in parts) == pytest.approx(whole.value)
    assert whole.n == 4
    assert (whole.value or 0) > 20


def test_a_small_band_of_ttft_is_refused() -> None:
    rows = table(phases.attribution(results()), "Medians of parts")
    assert str(rows["slowest 1 %, A: one"][0]).startswith("refused (n too small: 2 of 10)")


def test_without_server_times_no_part_is_made_up() -> None:
    made = results()
    silent = tuple(replace(one, records=_silent(one.records)) for one in made.runs)
    section = phases.attribution(replace(made, runs=silent))
    assert "No server said" in said(section)
    assert not any(isinstance(block, Waterfall | Table) for block in section.blocks)


def _silent(records: tuple[RequestRecord, ...]) -> tuple[RequestRecord, ...]:
    return tuple(msgspec.structs.replace(record, metrics=None) for record in records)


def test_the_timeline_shows_the_longest_gap_of_a_and_the_same_request_in_b() -> None:
    section = phases.attribution(results())
    a, b = (block for block in section.blocks if isinstance(block, Timeline))
    assert max(gap for _, gap in a.gaps) > 0.2
    assert max(gap for _, gap in b.gaps) < 0.06
    assert len(a.gaps) == len(b.gaps) == 23
    assert a.reach_s == b.reach_s == max(gap for _, gap in a.gaps)


def test_the_scatter_joins_the_same_requests() -> None:
    section = latency.results_table(results())
    points = next(b for b in section.blocks if isinstance(b, Scatter)).points
    assert len(points) == 160
    assert sum(b < a for a, b in points) > 100


def test_a_request_that_one_arm_never_sent_shifts_no_other() -> None:
    made = results()
    whole = next(b for b in latency.results_table(made).blocks if isinstance(b, Scatter)).points
    runs = tuple(
        replace(one, records=one.records[1:])
        if one.run.series == "target" and one.run.side == "B"
        else one
        for one in made.runs
    )
    fewer = replace(made, runs=runs)
    left = next(b for b in latency.results_table(fewer).blocks if isinstance(b, Scatter)).points
    assert len(left) == 156
    assert set(left) < set(whole)
    stalled, same = (
        next(
            b
            for b in phases.attribution(of).blocks
            if isinstance(b, Timeline) and "in B" in b.title
        )
        for of in (made, fewer)
    )
    assert stalled.gaps == same.gaps


def test_a_row_of_the_plan_stands_between_single_and_split() -> None:
    made = results()
    also = [
        replace(one, run=replace(one.run, phase="rows", series="chunks@64"))
        for one in made.runs
        if one.run.series == "target" and one.run.side == "B"
    ]
    found = latency.results_table(replace(made, runs=(*made.runs, *also)))
    head = next(b for b in found.blocks if isinstance(b, Table)).columns
    assert head == ("quantity", "A: one", "chunks@64", "B: split")


def test_series_stand_in_the_order_run_with_their_pairs() -> None:
    rows = table(series.axes(results()), "")
    assert list(rows) == ["prompt_len=S", "prompt_len=M", "concurrency=4"]
    assert rows["concurrency=4"][-1] == "3 pairs"
    assert "Not measured" in said(series.layouts(results()))


def test_void_runs_are_all_listed_and_enter_nothing() -> None:
    made = results()
    section = trust.validity(made)
    assert len(table(section, "Void runs")) == 1
    assert "1 void" in said(section)
    voided = tuple(replace(one, state=State.VOID) for one in made.runs)
    section = latency.results_table(replace(made, runs=voided))
    assert str(table(section, "Latency")["attainment of the SLO"][0]) == "not measured"


def test_runs_that_were_skipped_say_why() -> None:
    made = results()
    skipped = replace(made.runs[3], state=State.SKIPPED, reason="its fault cannot be made here")
    rows = table(trust.validity(replace(made, runs=(skipped,))), "Skipped")
    assert [row[-1] for row in rows.values()] == ["its fault cannot be made here"]


def test_a_change_within_a_run_is_shown() -> None:
    made = results()
    other = replace(made.runs[2], after={"version": "2", "driver": "570"})
    rows = table(trust.environment(replace(made, runs=(*made.runs[:2], other))), "Changed")
    assert list(rows.values()) == [("version", "1", "2")]


def test_a_missing_rollback_is_said_aloud() -> None:
    section = rollback.rollback(results(study(rollback=None)))
    assert "ADOPT is impossible" in said(section)


def test_confounders_are_counted() -> None:
    made = results()
    single, split = made.plan.baseline.config, dict(made.plan.split.config)
    changed = replace(made, configs=(single, {**split, "model.dtype": "float16"}))
    assert "Confounders: 1" in said(setup.configurations(changed))
    assert "No difference is a confounder" in said(setup.configurations(made))


def test_the_self_test_says_how_it_ended_and_keeps_every_form() -> None:
    section = trust.validity(
        results(self_test="ok CRLF (0.1 ms)\nok split (0.2 ms)\n2 of 2 passed")
    )
    assert "Self-test of the client, before the first run: 2 of 2 passed" in said(section)
    assert list(table(section, "form by form")) == ["ok CRLF (0.1 ms)", "ok split (0.2 ms)"]


def test_what_the_report_has_elsewhere_is_not_called_unmeasured() -> None:
    rows = table(setup.fixed(results()), "")
    assert "TTFT: section 7" in str(rows["workload"][2])
    assert "KV transfer time: section 7" in str(rows["routing"][2])
    bare = table(setup.fixed(results(study(handoffs=None))), "")
    assert "not measured: P and D that served it, KV transfer time" in str(bare["routing"][2])
