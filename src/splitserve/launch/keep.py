"""Keeps one process running: its lives, one after the other.

    starting -> ready -> (dies) restarting -> starting -> ready -> ... -> stopped
                  |                 '-- (dies too often) given_up
                  '-> (renewed) renewing -> starting -> ready

A process that does not become ready in its first life is not tried again: StartFailed. One that
was given up is tried again when somebody asks for it by ``renew``.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
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
    RENEWING = "leaving, to be started anew"
    RESTARTING = "restarting"
    GIVEN_UP = "given up"
    STOPPED = "stopped"


@dataclass(slots=True)
class Supervised:
    """What is to be told of one process. ``note`` says why it is restarting or given up.

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
    """``stop_s`` is how long a process may take to end after SIGTERM before it is killed.

    One that is renewed has its ``drain_s`` (see ProcessSpec) besides. ``settle_s`` is how long a
    gateway that would serve already may take to use every worker before the start counts as over.
    """

    stop_s: float = 10.0
    settle_s: float = 10.0
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
        self._settled = asyncio.Event()
        self._wanted = asyncio.Event()
        self._renewing = False
        self._deaths: list[float] = []

    async def run(self) -> None:
        failures = 0
        while not self._ending.is_set():
            born = self._clock()
            reason = await self._live()
            if self._ending.is_set():
                break
            if not self.has_started.is_set():
                raise self._start_failed(reason)
            if self._renewing:
                self._renewing, failures = False, 0
                continue
            failures = self._limits.restart.failures_in_row(failures, self._clock() - born)
            await self._after_death(reason, failures)
        self._enter(State.STOPPED)

    async def renew(self) -> None:
        """Lets the process drain and starts another in its place; returns when that is ready.

        Raises UnavailableError when it is given up or stopped instead.
        """
        self._settled.clear()
        self._deaths.clear()
        self._wanted.set()
        if self.status.state is State.READY and self._life is not None:
            self._renewing = True
            self._enter(State.RENEWING)
            self._life.stop()
            await self._gone(self._life, self._limits.stop_s + self.status.spec.drain_s)
        await self._settled.wait()
        if self.status.state is not State.READY:
            raise UnavailableError(
                f"{self.status.spec.name} is {self.status.state.value}: {self.status.note}"
            )

    async def end(self) -> None:
        """Asks the process to end, kills it after ``stop_s``; returns when it is gone."""
        self._ending.set()
        self._wanted.set()
        if self._life is not None:
            self._life.stop()
            await self._gone(self._life, self._limits.stop_s)

    def kill(self) -> None:
        """Ends the process at once, waiting for nothing."""
        self._ending.set()
        self._wanted.set()
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
            await self._gone(life, self._limits.stop_s)
            return report.reason
        self.status.facts = report.facts
        self._enter(State.READY)
        self.has_started.set()
        self._settled.set()
        return describe_exit(await life.wait())

    async def _gone(self, life: RunningProcess, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await life.wait()
        except TimeoutError:
            life.kill()
            await life.wait()

    async def _after_death(self, reason: str, failures: int) -> None:
        """Until the process is to be started again, or to be ended."""
        policy, now = self._limits.restart, self._clock()
        self._deaths = [*self._deaths, now][-policy.give_up_after :]
        self._wanted.clear()
        if policy.is_hopeless(self._deaths, now):
            times = f"died {policy.give_up_after} times within {policy.window_s:.0f} s"
            self._enter(State.GIVEN_UP, f"{times}, {reason} at last; not started again")
            self._settled.set()
            await self._wanted.wait()
            return
        delay_s = policy.delay_s(failures)
        self.status.restarts += 1
        self._enter(State.RESTARTING, f"{reason}; starting again in {delay_s:.1f} s")
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._wanted.wait()

    def _enter(self, state: State, note: str = "") -> None:
        self.status.state = state
        self.status.note = note
        if state is State.STOPPED:
            self._settled.set()
        self._on_change(self.status)

    def _start_failed(self, reason: str) -> StartFailed:
        name = self.status.spec.name
        return StartFailed(name, reason, self._host.log_path(name), self._host.logs(name, 20))
