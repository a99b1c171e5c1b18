"""Tells a person, line by line, how a deployment's processes fare."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from rich.console import Console

from splitserve.clock import monotonic
from splitserve.launch.keep import State, Supervised
from splitserve.launch.show import print_line

_TICK_S: Final = 1.0


class Narrator:
    """Writes one line per change; on a terminal, also one that counts the seconds of the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
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
    async def waiting_for(self, processes: Sequence[Supervised]) -> AsyncIterator[None]:
        """Within the block a terminal shows what is still waited for."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status("starting") as line:
            ticker = asyncio.create_task(self._tick(line.update, processes))
            try:
                yield
            finally:
                ticker.cancel()

    async def _tick(self, update: Callable[[str], None], processes: Sequence[Supervised]) -> None:
        while True:
            update(describe_start(processes, self.elapsed_s))
            await asyncio.sleep(_TICK_S)


def describe_start(processes: Iterable[Supervised], elapsed_s: float) -> str:
    """``2 of 3 ready, waiting for decode-0 (4 s)``."""
    listed = list(processes)
    waiting = [process.spec.name for process in listed if process.state is not State.READY]
    ready = len(listed) - len(waiting)
    names = ", ".join(waiting) or "a worker to be usable"
    return f"{ready} of {len(listed)} ready, waiting for {names} ({elapsed_s:.0f} s)"
