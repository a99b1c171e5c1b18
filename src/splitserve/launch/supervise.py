"""Starts a plan's processes together, keeps them running, stops them in order."""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final

from splitserve.clock import Clock, monotonic
from splitserve.launch.addresses import http_url
from splitserve.launch.hosts.base import Host
from splitserve.launch.keep import Keeper, Limits, OnChange, Supervised
from splitserve.launch.plan import Plan
from splitserve.launch.probe import ask_ready
from splitserve.launch.roll import roll
from splitserve.lifecycle import StartFailed

_POLL_S: Final = 0.05
_WATCH_S: Final = 2.0


def _unsaid(line: str) -> None:
    """For those who look at ``Deployment.notes`` instead."""


class Deployment:
    """All processes of one plan. ``async with`` starts them and, at its end, stops them.

    Within the block a request would be served, unless something has died since. Entering raises
    StartFailed when a process does not become ready; then nothing is left running. ``say`` takes
    what the gateway finds amiss while all runs, a line each.
    """

    def __init__(
        self,
        plan: Plan,
        host: Host,
        on_change: OnChange,
        limits: Limits,
        clock: Clock = monotonic,
        say: Callable[[str], None] = _unsaid,
    ) -> None:
        self.notes: tuple[str, ...] = ()
        self._say = say
        self._keepers = {
            spec.name: Keeper(spec, host, limits, clock, on_change) for spec in plan.processes
        }
        self._gateways = [self._keepers[spec.name] for spec in plan.gateways]
        self._workers = [self._keepers[worker.process.name] for worker in plan.workers]
        self._clock = clock
        self._settle_s = limits.settle_s
        self._asked = plan.topology.gateway
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def processes(self) -> tuple[Supervised, ...]:
        """Workers in the plan's order, then the gateways."""
        return tuple(keeper.status for keeper in self._keepers.values())

    @property
    def port(self) -> int:
        """The gateway's; known once it is ready where a free one was asked for."""
        return int(self._gateways[0].status.facts.get("port", self._asked.port))

    @property
    def url(self) -> str:
        """The gateway as reached from this machine."""
        return http_url(self._asked.host, self.port)

    async def __aenter__(self) -> "Deployment":
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def run_forever(self) -> None:
        """Returns never; the way out is to be cancelled."""
        await self._while_kept(self._watch())

    async def restart_workers(self, say: Callable[[str], None]) -> None:
        """One after another, while the others serve (see ``roll``)."""
        await roll(self._workers, say, self._clock, self._found_again)

    async def stop(self) -> None:
        """Gateways first, so that no request meets half a deployment; then all workers at once."""
        await asyncio.gather(*(keeper.end() for keeper in self._gateways))
        await asyncio.gather(*(keeper.end() for keeper in self._workers))
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            # StartFailed was raised where the start was waited for.
            if outcome is not None and not isinstance(outcome, StartFailed):
                raise outcome

    def kill(self) -> None:
        """Ends every process at once, waiting for nothing."""
        for keeper in self._keepers.values():
            keeper.kill()

    async def _start(self) -> None:
        self._tasks = [asyncio.create_task(keeper.run()) for keeper in self._keepers.values()]
        await self._while_kept(self._all_started())
        await self._while_kept(self._answered())

    async def _found_again(self, name: str) -> bool:
        """Whether the gateway would use that worker, as far as it says."""
        return await self._ask() and not any(
            name in note.replace(":", " ").split() for note in self.notes
        )

    async def _all_started(self) -> None:
        for keeper in self._keepers.values():
            await keeper.has_started.wait()

    async def _answered(self) -> None:
        """Until the gateway serves, and uses all workers unless that takes too long."""
        deadline: float | None = None
        # Another process's state: nothing here could be waited for.
        while True:
            if await self._ask():
                deadline = deadline or self._clock() + self._settle_s
                if not self.notes or self._clock() > deadline:
                    return
            await asyncio.sleep(_POLL_S)

    async def _watch(self) -> None:
        while True:
            told = self.notes
            await self._ask()
            for note in self.notes:
                if note not in told:
                    self._say(note)
            await asyncio.sleep(_WATCH_S)

    async def _ask(self) -> bool:
        """Whether the gateway would serve a request; ``notes`` are what it says besides."""
        readiness = await ask_ready(self._asked.host, self.port)
        self.notes = readiness.notes
        return readiness.ready

    async def _while_kept(self, goal: Coroutine[Any, Any, object]) -> None:
        """Waits for ``goal``; raises what a keeper raises before that."""
        task = asyncio.create_task(goal)
        try:
            await asyncio.wait([task, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
        for keeper in self._tasks:
            if keeper.done():
                keeper.result()
        # Cancelling a task that is done has no effect.
        if task.done():
            await task
