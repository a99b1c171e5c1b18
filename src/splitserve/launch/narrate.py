"""Tells a person, line by line, how a deployment's processes fare."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Final

from rich.console import Console

from splitserve.clock import monotonic
from splitserve.launch.keep import State, Supervised
from splitserve.launch.show import print_line

Notes = Callable[[], Sequence[str]]

_TICK_S: Final = 1.0
_REMIND_S: Final = 30.0
"""Where lines stay, as in a log: a GPU worker's first start may compile for minutes."""


class Narrator:
    """Writes one line per change, and what a start waits for: on a terminal in a line that counts
    the seconds, elsewhere every ``remind_s`` seconds."""

    def __init__(self, console: Console, remind_s: float = _REMIND_S) -> None:
        self._console = console
        self._remind_s = remind_s
        self._born = monotonic()

    @property
    def elapsed_s(self) -> float:
        return monotonic() - self._born

    def changed(self, process: Supervised) -> None:
        """For Deployment's ``on_change``."""
        note = f": {process.note}" if process.note else ""
        self.say(f"{process.spec.name} {process.state.value}{note}")

    def say(self, line: str) -> None:
        """One line, with the time."""
        clock = time.strftime("%H:%M:%S")
        print_line(self._console, f"{clock} {line}")

    @asynccontextmanager
    async def waiting_for(
        self, processes: Sequence[Supervised], notes: Notes = tuple
    ) -> AsyncIterator[None]:
        """Within the block it is told what is still waited for. ``notes`` gives what the gateway
        says of workers that it does not use."""
        with ExitStack() as shown:
            if self._console.is_terminal:
                line = shown.enter_context(self._console.status("starting"))
                ticking = self._tick(line.update, _TICK_S, processes, notes)
            else:
                ticking = self._tick(self.say, self._remind_s, processes, notes)
            ticker = asyncio.create_task(ticking)
            try:
                yield
            finally:
                ticker.cancel()

    async def _tick(
        self,
        tell: Callable[[str], None],
        every_s: float,
        processes: Sequence[Supervised],
        notes: Notes,
    ) -> None:
        while True:
            await asyncio.sleep(every_s)
            tell(describe_start(processes, self.elapsed_s, notes()))


def describe_start(
    processes: Iterable[Supervised], elapsed_s: float, notes: Sequence[str] = ()
) -> str:
    """``2 of 3 ready, waiting for decode-0 (4 s)``."""
    listed = list(processes)
    waiting = [process.spec.name for process in listed if process.state is not State.READY]
    ready = len(listed) - len(waiting)
    usable = ": ".join(["a worker to be usable", *(["; ".join(notes)] if notes else [])])
    names = ", ".join(waiting) or usable
    return f"{ready} of {len(listed)} ready, waiting for {names} ({elapsed_s:.0f} s)"
