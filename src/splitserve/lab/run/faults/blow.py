"""One fault of one worker process: made, and waited for until nothing is amiss any more."""

import asyncio
import signal
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from splitserve.errors import UnavailableError
from splitserve.lab.arms.topology import TopologyArm
from splitserve.lab.plan.faults import ROLE_STRUCK, TIMEOUTS
from splitserve.lab.run.faults.workers import Worker, is_replaced, worker_of
from splitserve.launch.probe import ask_ready

_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Blow:
    """``stop_s`` None kills ``worker``, else it is stopped for so long. ``notes`` are what its
    gateway at ``host`` and ``port`` had to remark before."""

    worker: Worker
    launcher: int
    stop_s: float | None
    host: str
    port: int
    notes: frozenset[str]

    @property
    def what(self) -> str:
        """What is done to whom, for people."""
        if self.stop_s is None:
            return f"{self.worker.name} was killed (SIGKILL)"
        return f"{self.worker.name} was stopped for {self.stop_s:g} s (SIGSTOP, then SIGCONT)"

    async def fall(self) -> None:
        """Returns when the gateway has no more to remark than before, and what was killed runs
        again. However it ends, nobody is left stopped."""
        if self.stop_s is None:
            self.worker.signal(signal.SIGKILL)
        else:
            try:
                self.worker.signal(signal.SIGSTOP)
                await asyncio.sleep(self.stop_s)
            finally:
                self.worker.signal(signal.SIGCONT)
        while not await self._is_whole():  # noqa: ASYNC110 -- another process is asked
            await asyncio.sleep(_POLL_S)

    async def _is_whole(self) -> bool:
        # Looking through all processes would keep the client from its requests.
        if self.stop_s is None and not await asyncio.to_thread(
            is_replaced, self.worker, self.launcher
        ):
            return False
        readiness = await ask_ready(self.host, self.port)
        return readiness.ready and set(readiness.notes) <= self.notes


async def aimed(arm: TopologyArm, fault: str, stop_s: float) -> Blow:
    """At the first worker of the role that ``fault`` is for.

    Raises UnavailableError where there is none to be found.
    """
    role = ROLE_STRUCK[fault]
    worker, launcher = worker_of(arm.members, role), arm.launcher
    if worker is None or launcher is None:
        raise UnavailableError(f"arm {arm.label}: no {role} worker of it is to be found")
    parts = urlsplit(arm.endpoint.url)
    host, port = parts.hostname or "", parts.port or 0
    notes = (await ask_ready(host, port)).notes
    stopped_s = stop_s if fault == TIMEOUTS else None
    return Blow(worker, launcher, stopped_s, host, port, frozenset(notes))
