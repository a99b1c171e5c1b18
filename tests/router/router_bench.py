"""Scripted workers, a router over them, a clock moved by hand, readers in the background."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripted_worker import ScriptedWorker

from splitserve.errors import SplitserveError
from splitserve.ids import RequestId
from splitserve.protocol.generate import GenerateRequest, TokenChunk
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.orchestrator import Router
from splitserve.router.policy.base import Observation, Placement


class HandClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Notebook:
    """A RouterObserver that keeps everything."""

    placements: list[Placement] = field(default_factory=list)
    phases: list[tuple[str, str]] = field(default_factory=list)
    handoffs: list[tuple[str, int, float, float, float]] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    fallbacks: list[tuple[str, str]] = field(default_factory=list)
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    admissions: list[tuple[str, str]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)

    def placed(self, request_id: RequestId, placement: Placement) -> None:
        self.placements.append(placement)

    def phase(self, request_id: RequestId, phase: str, seconds: float) -> None:
        assert seconds >= 0
        self.phases.append((request_id, phase))

    def handoff(
        self, request_id: RequestId, nbytes: int, queue_s: float, prefill_s: float, exposed_s: float
    ) -> None:
        self.handoffs.append((request_id, nbytes, queue_s, prefill_s, exposed_s))

    def observed(self, observation: Observation) -> None:
        self.observations.append(observation)

    def fallback(self, rung: str, reason: str) -> None:
        self.fallbacks.append((rung, reason))

    def admission(self, decision: str, reason: str) -> None:
        self.admissions.append((decision, reason))

    def waited(self, seconds: float) -> None:
        self.waits.append(seconds)

    def queue(self, depth: int, predicted_wait_s: float) -> None:
        self.depths.append(depth)
        self.predicted.append(predicted_wait_s)

    def ended(self, request_id: RequestId, outcome: str) -> None:
        self.outcomes.append((request_id, outcome))


class Answer:
    """One request being read in the background."""

    def __init__(self, router: Router, request: GenerateRequest) -> None:
        self.request = request
        self.chunks: list[TokenChunk] = []
        self.error: SplitserveError | None = None
        self._stream = router.generate(request)
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    @property
    def tokens(self) -> list[int]:
        return [token for chunk in self.chunks for token in chunk.token_ids]

    async def ended(self) -> "Answer":
        await self._task
        return self

    async def has(self, count: int) -> None:
        """Until so many tokens have come."""
        while len(self.tokens) < count:
            self._news.clear()
            await self._news.wait()

    async def leave(self) -> None:
        """As a client that hangs up."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._stream.aclose()

    async def _read(self) -> None:
        try:
            async for chunk in self._stream:
                self.chunks.append(chunk)
                self._news.set()
        except SplitserveError as error:
            self.error = error


class Bench:
    """Scripted workers and one router over them."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.notes = Notebook()
        self.workers: list[ScriptedWorker] = []
        self.folder = folder
        self._routers: list[Router] = []

    async def worker(self, name: str, role: str, **options: object) -> ScriptedWorker:
        worker = ScriptedWorker(self.folder, name, role, **options)  # type: ignore[arg-type]
        self.workers.append(worker)
        return await worker.start()

    async def split(self) -> tuple[Router, ScriptedWorker, ScriptedWorker]:
        """One prefill and one decode worker, linked."""
        p = await self.worker("p0", "prefill")
        d = await self.worker("d0", "decode", linked=("p0",))
        return await self.router(), p, d

    async def colocated(self, **options: object) -> tuple[Router, ScriptedWorker]:
        worker = await self.worker("c0", "colocated", **options)
        return await self.router(), worker

    async def router(
        self, *, calm: bool = True, fingerprint: dict[str, str] | None = None, **settings: object
    ) -> Router:
        """Started; ``calm`` waits until every worker is usable and linked.

        Limits are such that only ``tick`` called by the test looks at the time.
        """
        by_hand = {"backoff_s": 0.005, "liveness_s": 2000.0, "tick_s": 1000.0}
        config = RouterConfig(**(by_hand | settings))  # type: ignore[arg-type]
        router = Router(
            config,
            [worker.address for worker in self.workers],
            gateway="g",
            fingerprint=fingerprint,
            observer=self.notes,
            clock=self.clock,
        )
        self._routers.append(router)
        await router.start()
        if calm:
            await until(lambda: router.warnings() == [])
        return router

    async def close(self) -> None:
        for router in self._routers:
            await router.close()
            assert router.ledger.empty
            assert router.open_requests == 0
        for worker in self.workers:
            await worker.stop()


async def until(true: Callable[[], bool]) -> None:
    """Lets the loop run until ``true``: for states that nobody announces."""
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0)
