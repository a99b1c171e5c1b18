"""Keeps one process running: its lives, one after the other.

    starting -> ready -> (dies) restarting -> starting -> ready -> ... -> stopped

A process that does not become ready in its first life is not tried again: StartFailed.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from splitserve.clock import Clock
from splitserve.errors import UnavailableError
from splitserve.launch.hosts.base import Host, RunningProcess
from splitserve.launch.restart import RestartPolicy
from splitserve.launch.spec import ProcessSpec
from splitserve.lifecycle import Fact, StartFailed, describe_exit


class State(Enum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPED = "stopped"


@dataclass(slots=True)
class Supervised:
    """What is to be told of one process. ``note`` says why it is restarting.

    ``facts`` are what it said with ready.
    """

    spec: ProcessSpec
    state: State = State.STARTING
    pid: int | None = None
    restarts: int = 0
    note: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)


OnChange = Callable[[Supervised], None]
"""Called after each change of state, from the event loop; must not block."""


@dataclass(frozen=True, slots=True)
class Limits:
    """``stop_s`` is how long a process may take to end after SIGTERM before it is killed."""

    stop_s: float = 10.0
    restart: RestartPolicy = field(default_factory=RestartPolicy)


class Keeper:
    """``run`` ends by StartFailed, or once ``end`` was called and the process is gone."""

    def __init__(
        self, spec: ProcessSpec, host: Host, limits: Limits, clock: Clock, on_change: OnChange
    ) -> None:
        self.status = Supervised(spec)
        self.has_started = asyncio.Event()
        self._host = host
        self._limits = limits
        self._clock = clock
        self._on_change = on_change
        self._life: RunningProcess | None = None
        self._ending = asyncio.Event()

    async def run(self) -> None:
        failures = 0
        while not self._ending.is_set():
            born = self._clock()
            reason = await self._live()
            if self._ending.is_set():
                break
            if not self.has_started.is_set():
                raise self._start_failed(reason)
            failures = self._limits.restart.failures_in_row(failures, self._clock() - born)
            await self._pause(reason, self._limits.restart.delay_s(failures))
        self._enter(State.STOPPED)

    async def end(self) -> None:
        """Asks the process to end, kills it after ``stop_s``; returns when it is gone."""
        self._ending.set()
        if self._life is not None:
            self._life.stop()
            await self._gone(self._life)

    def kill(self) -> None:
        """Ends the process at once, waiting for nothing."""
        self._ending.set()
        if self._life is not None:
            self._life.kill()

    async def _live(self) -> str:
        """One life from start to end. Returns how it ended."""
        try:
            life = self._life = await self._host.start(self.status.spec)
        except UnavailableError as error:
            return str(error)
        self.status.pid = life.pid
        self._enter(State.STARTING)
        if self._ending.is_set():
            # Asked to end while the host was still starting it.
            life.stop()
        report = await life.report()
        if not report.ready:
            await self._gone(life)
            return report.reason
        self.status.facts = report.facts
        self._enter(State.READY)
        self.has_started.set()
        return describe_exit(await life.wait())

    async def _gone(self, life: RunningProcess) -> None:
        try:
            async with asyncio.timeout(self._limits.stop_s):
                await life.wait()
        except TimeoutError:
            life.kill()
            await life.wait()

    async def _pause(self, reason: str, delay_s: float) -> None:
        self.status.restarts += 1
        self._enter(State.RESTARTING, f"{reason}; starting again in {delay_s:.1f} s")
        try:
            async with asyncio.timeout(delay_s):
                await self._ending.wait()
        except TimeoutError:
            pass

    def _enter(self, state: State, note: str = "") -> None:
        self.status.state = state
        self.status.note = note
        self._on_change(self.status)

    def _start_failed(self, reason: str) -> StartFailed:
        name = self.status.spec.name
        return StartFailed(name, reason, self._host.log_path(name), self._host.logs(name, 20))
