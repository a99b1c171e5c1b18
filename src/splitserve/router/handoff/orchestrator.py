"""The router: a Generator over workers.

A request's path: ``generate`` lets it in, Intake finds workers that have room, the Conductor runs
its handoff machine against them, and the answer comes back in order through its TokenStream.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

from splitserve.clock import Clock, monotonic
from splitserve.protocol.course import Course
from splitserve.protocol.gate import Gate
from splitserve.protocol.generate import GenerateRequest, TokenChunk
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.generation import Assignment
from splitserve.router.handoff.intake import Intake
from splitserve.router.ledger import Ledger
from splitserve.router.observer import NullObserver, RouterObserver
from splitserve.router.policy import registry as policies
from splitserve.router.workers.client import Connect, WorkerClient, WorkerEvents
from splitserve.router.workers.native import NativeClient
from splitserve.router.workers.record import WorkerSnapshot
from splitserve.router.workers.registry import WorkerRegistry, WorkerSink


class Router:
    """Implements Generator over the workers at ``addresses``.

    ``gateway`` names this process to workers. ``fingerprint`` is what the gateway itself expects of
    them. ``connect`` makes worker clients: native ones by default, which pass ``gate`` over TCP.
    All calls from one event loop. Raises ConfigError for an unknown policy.
    """

    def __init__(
        self,
        config: RouterConfig,
        addresses: Sequence[str],
        *,
        gateway: str,
        fingerprint: Mapping[str, str] | None = None,
        observer: RouterObserver | None = None,
        clock: Clock = monotonic,
        connect: Connect | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._config = config
        self._addresses = tuple(addresses)
        self._gateway = gateway
        self._gate = gate
        self._timer: asyncio.TimerHandle | None = None
        self.ledger: Ledger[Assignment] = Ledger()

        def registry(sink: WorkerSink) -> WorkerRegistry:
            return WorkerRegistry(
                config,
                self.ledger,
                sink,
                connect or self._connect_native,
                fingerprint or {},
                clock,
            )

        self._intake = Intake(
            config,
            policies.create(config.policy),
            self.ledger,
            observer or NullObserver(),
            clock,
            registry,
        )

    @property
    def workers(self) -> WorkerRegistry:
        """To add or remove workers while running."""
        return self._intake.workers

    @property
    def open_requests(self) -> int:
        """Requests that have not ended, the waiting ones included."""
        return self._intake.open

    @property
    def waiting_requests(self) -> int:
        """Requests that no worker has room for now."""
        return self._intake.waiting

    async def start(self) -> None:
        """Starts connecting; ``ready`` says when that has led to something. Raises ConfigError."""
        for address in self._addresses:
            self.workers.add(address)
        self._on_timer()

    async def close(self) -> None:
        """Ends what still runs, telling workers and readers, and leaves the workers."""
        if self._timer is not None:
            self._timer.cancel()
        self._intake.close()
        await self.workers.close()

    def ready(self) -> str | None:
        """None when a request would succeed now, else why not."""
        return self.workers.ready()

    def warnings(self) -> list[str]:
        """What is not as the deployment was meant, a line each; ``ready`` may be None all the
        same. Empty once every worker is usable and every prefill worker linked."""
        return self.workers.warnings()

    def snapshot(self) -> list[WorkerSnapshot]:
        """The workers as this gateway sees them."""
        return self.workers.snapshot()

    async def generate(
        self, request: GenerateRequest, course: Course | None = None
    ) -> AsyncGenerator[TokenChunk, None]:
        """See Generator. Chunks that have waited for the reader come as one."""
        generation = self._intake.let_in(request, course or Course())
        stream, name = generation.stream, request.request_id
        try:
            while True:
                chunk = stream.take()
                if chunk is None:
                    chunk = await stream.news()
                yield chunk if chunk.request_id == name else generation.as_asked(chunk)
                if chunk.finish_reason is not None:
                    return
        finally:
            self._intake.give_up(generation)

    def tick(self) -> None:
        """Looks at the time. Runs every ``tick_s`` between ``start`` and ``close``."""
        self.workers.tick()
        self._intake.expire()

    def _on_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._config.tick_s, self._on_timer)
        self.tick()

    def _connect_native(self, address: str, events: WorkerEvents) -> WorkerClient:
        return NativeClient(
            address,
            events,
            gateway=self._gateway,
            backoff_s=self._config.backoff_s,
            max_backoff_s=self._config.max_backoff_s,
            gate=self._gate,
        )
