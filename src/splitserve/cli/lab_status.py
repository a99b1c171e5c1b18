"""How far a study is. Of the run that goes on it knows all, and of no other run anything: so it
cannot say how the arms compare."""

import math
import shutil
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, TextIO

from splitserve.cli.lab_running import Running
from splitserve.lab.measure.tail import TailRule
from splitserve.lab.plan.phases import Cell, Run
from splitserve.lab.run.execute import Live
from splitserve.lab.run.units import Unit

BudgetLeft = Callable[[], float]
"""Seconds of the plan's budget that no run has taken yet."""

RuleOf = Callable[[Cell], TailRule]
"""Which gap of an answer is its tail, in a cell."""

_UP: Final = "\x1b[{}A"
_CLEAR_BELOW: Final = "\x1b[J"


class Status:
    """Implements ``run.study.Told``. On a terminal a few lines that are written over; elsewhere a
    line as a run begins and one when it has ended."""

    def __init__(self, stream: TextIO, rule_of: RuleOf, budget_left: BudgetLeft) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._rule_of = rule_of
        self._budget_left = budget_left
        self._head = ""
        self._running: Running | None = None
        self._last: Live | None = None
        self._shown = 0

    def __enter__(self) -> "Status":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_run()

    def preflight(self) -> None:
        self.say("testing the load client on this machine")

    def run(self, unit: Unit, run: Run, left_s: float) -> None:
        self._end_run()
        budget = left_text(max(0.0, self._budget_left()))
        left = f"about {left_text(left_s)} to go, {budget} of the budget left"
        self._head = f"{unit.text()}, arm {run.arm}, {run.cell.text()}; {left}"
        self._running = Running(self._rule_of(run.cell))
        if self._terminal:
            self._over([self._head, "  starting"])
        else:
            self.say(self._head)

    def live(self, live: Live) -> None:
        if self._running is None:
            return
        self._running.take(live.records)
        self._last = live
        if self._terminal:
            lines = (progress_text(live), times_text(self._running))
            self._over([self._head, *(f"  {line}" for line in lines)])

    def say(self, line: str) -> None:
        self._clear()
        print(line, file=self._stream, flush=True)

    def _end_run(self) -> None:
        """Where lines stay, one of each run does: without times, which could be compared."""
        if self._last is not None and self._running is not None and not self._terminal:
            self._running.take(self._last.records)
            ended = f"{len(self._last.records)} of {self._last.total} answered"
            self.say(f"  {ended}, {failed_text(self._running)}")
        self._clear()
        self._last = self._running = None

    def _over(self, lines: Sequence[str]) -> None:
        self._clear()
        # A line that wraps could not be written over.
        width = shutil.get_terminal_size().columns - 1
        self._stream.write("".join(f"{line[:width]}\n" for line in lines))
        self._stream.flush()
        self._shown = len(lines)

    def _clear(self) -> None:
        if self._shown:
            self._stream.write(_UP.format(self._shown) + "\r" + _CLEAR_BELOW)
            self._stream.flush()
            self._shown = 0


def progress_text(live: Live) -> str:
    """Answers, what is under way, and rates: delivered of intended."""
    if live.intended is None:
        return f"{live.ended} of {live.total} answered, {live.elapsed_s:.0f} s"
    under_way = max(0, live.intended - live.ended)
    delivered, intended = (_rate(n, live.elapsed_s) for n in (live.ended, live.intended))
    return (
        f"{live.ended} of {live.intended} due answered, {live.total} in all; {under_way} under "
        f"way; {delivered} of {intended} requests/s; {live.elapsed_s:.0f} s"
    )


def times_text(running: Running) -> str:
    """Medians of this run so far, and failures by class."""
    named = (("TTFT", running.ttft_s), ("tail ITL", running.tail_itl_s))
    told = [f"{name} {_ms(seconds)}" for name, seconds in named if seconds is not None]
    times = f"this run so far, median: {', '.join(told)}" if told else "no answer yet"
    return f"{times}; {failed_text(running)}"


def failed_text(running: Running) -> str:
    """Failures of this run by class."""
    classes = running.failed
    if not classes:
        return "none failed"
    named = ", ".join(f"{n} {name}" for name, n in classes.most_common())
    return f"{classes.total()} failed: {named}"


def left_text(seconds: float) -> str:
    """``3 h 05 min``, ``12 min`` or ``40 s``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:.3g}" if seconds > 0 else "0"


def _ms(seconds: float) -> str:
    return "∞ (failures)" if math.isinf(seconds) else f"{1000 * seconds:.3g} ms"
