"""What is seen of a study while it runs: all of the run that goes on, nothing of any other."""

import io
import math
import re
from collections.abc import Sequence

import pytest

from splitserve.cli.lab_status import Status, left_text
from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.measure.tail import TailRule
from splitserve.lab.plan.phases import Cell, Run
from splitserve.lab.run.execute import Live
from splitserve.lab.run.units import Unit

CELL = Cell("S", "S", "2/s", 2.0, None)


class Terminal(io.StringIO):
    """``screen`` is what a terminal that obeys "up" and "clear below" would show."""

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> list[str]:
        lines: list[str] = [""]
        for part in re.split(r"(\x1b\[\d*[AJ]|\n|\r)", self.getvalue()):
            if part == "\n":
                lines.append("")
            elif up := re.fullmatch(r"\x1b\[(\d+)A", part):
                lines = [*lines[: len(lines) - 1 - int(up[1])], ""]
            elif part not in ("\r", "\x1b[J"):
                lines[-1] += part
        return [line for line in lines if line]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def status(stream: io.StringIO) -> Status:
    return Status(stream, lambda cell: TailRule.MAX, lambda: 7200.0)


def unit(arm: str, pair: int = 2) -> Unit:
    run = Run(9, "target", "target", CELL, pair, 0, "A", arm, 0, 20, 60.0)
    return Unit((run,))


def begin(shown: Status, arm: str) -> None:
    whole = unit(arm)
    shown.run(whole, whole.runs[0], 720.0)


def record(
    ttft_s: float, gap_s: float, outcome: Outcome = Outcome.OK, *, warmup: bool = False
) -> RequestRecord:
    events = [(ttft_s, 1), (ttft_s + gap_s, 1)]
    return RequestRecord(
        request_id="r",
        arm="one",
        run="9",
        intended_s=0.0,
        sent_s=0.0,
        first_byte_s=ttft_s,
        events=events,
        ended_s=ttft_s + gap_s,
        outcome=outcome,
        counting=Counting.IDS,
        warmup=warmup,
    )


def live(records: Sequence[RequestRecord], intended: int | None = 8) -> Live:
    return Live(len(records), intended, 20, 4.0, records)


def test_a_terminal_shows_where_the_study_is_and_how_the_run_goes() -> None:
    stream = Terminal()
    shown = status(stream)
    begin(shown, "one")
    answers = [record(0.1, 0.02), record(0.2, 0.03), record(0.3, 0.05)]
    failed = [record(9.0, 9.0, Outcome.HTTP_ERROR)]
    shown.live(live([record(5.0, 5.0, warmup=True), *answers, *failed]))
    assert stream.screen == [
        "target, pair 3, arm one, S/S 2/s; about 12 min to go, 2 h 00 min of the budget left",
        "  5 of 8 due answered, 20 in all; 3 under way; 1.25 of 2 requests/s; 4 s",
        "  this run so far, median: TTFT 200 ms, tail ITL 30 ms; 1 failed: 1 http_error",
    ]


def test_nothing_of_one_arm_is_left_when_the_other_one_runs() -> None:
    stream = Terminal()
    shown = status(stream)
    begin(shown, "one")
    shown.live(live([record(0.1, 0.02, Outcome.OK), record(9.0, 9.0, Outcome.TRUNCATED)]))
    begin(shown, "split")
    assert stream.screen[1:] == ["  starting"]
    assert "arm split" in stream.screen[0]
    shown.live(live([]))
    assert stream.screen[2] == "  no answer yet; none failed"
    shown.live(live([record(0.4, 0.08)]))
    assert stream.screen[2] == (
        "  this run so far, median: TTFT 400 ms, tail ITL 80 ms; none failed"
    )


def test_failures_that_reach_the_median_are_no_times() -> None:
    stream = Terminal()
    shown = status(stream)
    begin(shown, "one")
    lost = record(math.inf, 0.0, Outcome.TIMEOUT_FIRST)
    shown.live(live([record(0.1, 0.02), lost, lost]))
    assert "TTFT ∞ (failures)" in stream.screen[2]


def test_a_line_that_stays_stands_above_and_the_rest_is_written_over() -> None:
    stream = Terminal()
    shown = status(stream)
    begin(shown, "one")
    shown.say("target, pair 2: void: the server died")
    begin(shown, "one")
    assert [line[:14] for line in stream.screen] == [
        "target, pair 2",
        "target, pair 3",
        "  starting",
    ]


def test_nothing_is_left_on_a_terminal_at_the_end() -> None:
    stream = Terminal()
    with status(stream) as shown:
        begin(shown, "one")
        shown.live(live([record(0.1, 0.02)]))
    assert stream.screen == []


def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    shown = status(stream)
    begin(shown, "one")
    shown.live(live([record(0.1, 0.02)]))
    assert max(map(len, stream.screen)) == 39


def test_elsewhere_lines_stay_and_have_no_times_that_could_be_compared() -> None:
    stream = io.StringIO()
    with status(stream) as shown:
        shown.preflight()
        begin(shown, "one")
        answers = [record(0.1, 0.02)]
        shown.live(live(answers))
        answers.append(record(9.0, 9.0, Outcome.TRUNCATED))
        begin(shown, "split")
    assert stream.getvalue().splitlines() == [
        "testing the load client on this machine",
        "target, pair 3, arm one, S/S 2/s; about 12 min to go, 2 h 00 min of the budget left",
        "  2 of 20 answered, 1 failed: 1 truncated",
        "target, pair 3, arm split, S/S 2/s; about 12 min to go, 2 h 00 min of the budget left",
    ]
    assert "\x1b" not in stream.getvalue()


def test_a_closed_loop_has_no_rate_that_was_intended() -> None:
    stream = Terminal()
    shown = status(stream)
    begin(shown, "one")
    shown.live(live([record(0.1, 0.02)], intended=None))
    assert stream.screen[1] == "  1 of 20 answered, 4 s"


@pytest.mark.parametrize(
    ("seconds", "text"), [(40.0, "40 s"), (720.0, "12 min"), (11100.0, "3 h 05 min")]
)
def test_times_that_are_left_are_for_people(seconds: float, text: str) -> None:
    assert left_text(seconds) == text
