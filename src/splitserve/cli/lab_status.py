"""How far a study is, in one line. Of how the arms compare it knows nothing."""

import shutil
from types import TracebackType
from typing import TextIO

from splitserve.lab.plan.phases import Run
from splitserve.lab.run.execute import Live
from splitserve.lab.run.units import Unit


class Status:
    """Implements ``run.study.Told``. On a terminal one line that is written over; elsewhere a line
    for each run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._head = ""
        self._left_s = 0.0
        self._width = 0

    def __enter__(self) -> "Status":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clear()

    def preflight(self) -> None:
        self.say("testing the load client on this machine")

    def run(self, unit: Unit, run: Run, left_s: float) -> None:
        self._head, self._left_s = f"{unit.text()}, {run.arm}, {run.cell.text()}", left_s
        if self._terminal:
            self._over(f"{self._head}: starting; {left_text(left_s)} left")
        else:
            self.say(f"{self._head}; {left_text(left_s)} left")

    def live(self, live: Live) -> None:
        if self._terminal:
            self._over(f"{self._head}: {live_text(live)}; {left_text(self._left_s)} left")

    def say(self, line: str) -> None:
        self._clear()
        print(line, file=self._stream, flush=True)

    def _over(self, line: str) -> None:
        # A line that wraps could not be written over.
        line = line[: shutil.get_terminal_size().columns - 1]
        padding = " " * max(0, self._width - len(line))
        self._stream.write(f"\r{line}{padding}")
        self._stream.flush()
        self._width = len(line)

    def _clear(self) -> None:
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


def live_text(live: Live) -> str:
    """Answers, requests under way, failures."""
    if live.intended is None:
        counted = f"{live.ended} of {live.total} answered"
    else:
        under_way = max(0, live.intended - live.ended)
        counted = f"{live.ended} of {live.intended} due answered, {under_way} under way"
    return f"{counted}, {live.errors} failed, {live.elapsed_s:.0f} s"


def left_text(seconds: float) -> str:
    """``3 h 05 min``, ``12 min`` or ``40 s``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
