"""What a soak does to workers: kills, freezes, rolling restarts; one at a time, seeded."""

import asyncio
import os
import random
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from splitserve.launch.keep import State, Supervised
from splitserve.launch.supervise import Deployment

PAUSE_S: Final = (0.5, 2.5)
"""Between two disturbances."""

FREEZE_S: Final = (0.2, 4.0)
"""From a hiccup to more than a gateway's patience with a silent worker."""

WEIGHTS: Final = {"kill": 5, "freeze": 5, "roll": 1}

_POLL_S: Final = 0.05


@dataclass(slots=True)
class Disturbances:
    """How many there were. ``rolls`` are restarts of all workers in turn."""

    kills: int = 0
    freezes: int = 0
    rolls: int = 0


class Chaos:
    """Disturbs the workers of ``deployment``. The gateway is left alone: what its clients read
    through it ends with it, whatever a server does."""

    def __init__(self, deployment: Deployment, seed: int) -> None:
        self.done = Disturbances()
        self._deployment = deployment
        self._random = random.Random(f"chaos-{seed}")

    async def run(self) -> None:
        """Until cancelled; nothing stays frozen then. Raises UnavailableError when a rolling
        restart does not get through."""
        while True:
            await asyncio.sleep(self._random.uniform(*PAUSE_S))
            await self._disturb()

    async def _disturb(self) -> None:
        (kind,) = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        victim = self._random.choice(self._workers())
        if kind == "roll":
            await self._deployment.restart_workers(_unheard)
            self.done.rolls += 1
        elif kind == "kill":
            self._signal(victim, signal.SIGKILL)
            self.done.kills += 1
            await self._until_ready(victim)
        else:
            await self._freeze(victim, self._random.uniform(*FREEZE_S))

    async def _freeze(self, victim: Supervised, seconds: float) -> None:
        self._signal(victim, signal.SIGSTOP)
        self.done.freezes += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._signal(victim, signal.SIGCONT)

    async def _until_ready(self, victim: Supervised) -> None:
        before = victim.restarts
        # Supervision happens elsewhere: nothing here could be waited for.
        while victim.state is not State.READY or victim.restarts == before:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    def _workers(self) -> list[Supervised]:
        return [p for p in self._deployment.processes if p.spec.role != "gateway"]

    def _signal(self, victim: Supervised, number: signal.Signals) -> None:
        if victim.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(victim.pid, number)


def _unheard(line: str) -> None:
    del line
