"""Keeps an eye on one instance: its load several times a second, its health once a second."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from splitserve.clock import Clock
from splitserve.protocol.telemetry import Load
from splitserve.router.workers.vllm.calls import Calls
from splitserve.router.workers.vllm.failure import LegFailed
from splitserve.router.workers.vllm.load_metrics import Reading, StepWatch, load, read_metrics

EVERY_S: Final = 0.5
"""Between two looks at the load. One costs vLLM's HTTP process 5 to 20 ms: 60 kB of text."""

AGAIN_S: Final = 0.1
"""After a look that failed."""

HEALTH_EVERY: Final = 2
"""Looks at the load for each look at the health. The load is told by an engine's grave, too."""

LOOK_TIMEOUT_S: Final = 5.0
"""Short of cores, vLLM's HTTP process may be slow to answer and well."""

REPEAT_S: Final = 0.5
"""What was last known is told again while a look takes long: the router takes two seconds of
silence for death, and here it is the looks that tell."""

FAILURES: Final = 2
"""Looks in a row that fail before the instance counts as lost."""


class Watch:
    """``report`` is called whenever there is something to report."""

    def __init__(
        self, calls: Calls, reading: Reading, report: Callable[[], None], clock: Clock
    ) -> None:
        self._calls = calls
        self._reading = reading
        self._report = report
        self._clock = clock
        self._steps = StepWatch()
        self._wake = asyncio.Event()
        self._failures = 0
        self._stopped = ""

    def load(self, *, busy: bool, linked: tuple[str, ...], draining: bool, role: str) -> Load:
        """``busy``: this gateway has requests there."""
        return load(
            self._reading,
            linked=linked,
            draining=draining,
            role=role,
            since_step_s=self._steps.look(self._reading, busy=busy, now=self._clock()),
        )

    async def read_now(self) -> Reading:
        """Raises LegFailed."""
        self._reading = read_metrics(await self._calls.get("/metrics", LOOK_TIMEOUT_S))
        return self._reading

    def look_now(self) -> None:
        """Something there went wrong."""
        self._wake.set()

    def stop(self, reason: str) -> None:
        self._stopped = self._stopped or reason
        self._wake.set()

    async def until_lost(self) -> str:
        """Looks and reports until ``stop``, or until the instance seems dead: gives the reason."""
        looks = 0
        while not self._stopped:
            thorough = self._wake.is_set() or looks % HEALTH_EVERY == 0
            self._wake.clear()
            looking = asyncio.ensure_future(self._look(health=thorough))
            try:
                await self._bridge(looking)
            finally:
                looking.cancel()
            if not self._failures:
                self._report()
            looks = 0 if self._failures else looks + 1
            await self._pause()
        return self._stopped

    async def _bridge(self, looking: "asyncio.Future[None]") -> None:
        """Until the look is over, or makes no difference any more."""
        while not self._stopped:
            done, _ = await asyncio.wait({looking}, timeout=REPEAT_S)
            if done:
                return
            self._report()

    async def _look(self, *, health: bool) -> None:
        try:
            if health:
                await self._calls.get("/health", LOOK_TIMEOUT_S)
            await self.read_now()
        except LegFailed as error:
            self._failures += FAILURES if error.refused else 1
            if self._failures >= FAILURES:
                self.stop(error.reason)
        else:
            self._failures = 0

    async def _pause(self) -> None:
        """Until the next look, or a reason to look at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_S if self._failures else EVERY_S):
                await self._wake.wait()
