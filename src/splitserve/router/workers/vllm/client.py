"""A vLLM instance as a worker: WorkerClient over its HTTP endpoints."""

import asyncio
import logging
from contextlib import suppress

import aiohttp

from splitserve.clock import Clock, monotonic
from splitserve.ids import WorkerId
from splitserve.protocol.codec import Message
from splitserve.protocol.control import Drain, Pair, RoleSet, SetRole
from splitserve.protocol.generate import GenerateRequest
from splitserve.router.workers.client import Order, WorkerEvents
from splitserve.router.workers.vllm.answers import Event
from splitserve.router.workers.vllm.bodies import Asked
from splitserve.router.workers.vllm.calls import Calls, new_session
from splitserve.router.workers.vllm.desk import Surroundings
from splitserve.router.workers.vllm.dialects.base import Dialect, Instance
from splitserve.router.workers.vllm.exchange import Exchange
from splitserve.router.workers.vllm.failure import LegFailed
from splitserve.router.workers.vllm.handshake import Handshakes, TryOut
from splitserve.router.workers.vllm.probe import Found, probe, welcome
from splitserve.router.workers.vllm.settings import ROLES, VllmWorker, missing_facts
from splitserve.router.workers.vllm.watch import Watch
from splitserve.router.workers.vllm.work import Work

log = logging.getLogger(__name__)


class VllmClient:
    """WorkerClient and Member of the exchange.

    ``dialect`` None: it takes no part in handoffs. ``try_out`` is what a pair has to pass before it
    is linked. Pauses between attempts to reach it grow from
    ``backoff_s`` to ``max_backoff_s``; to have reached it resets them.
    """

    def __init__(
        self,
        address: str,
        events: WorkerEvents,
        worker: VllmWorker,
        dialect: Dialect | None,
        exchange: Exchange,
        *,
        backoff_s: float,
        max_backoff_s: float,
        try_out: TryOut,
        clock: Clock = monotonic,
    ) -> None:
        self._address = address
        self._events = events
        self._worker = worker
        self._dialect = dialect
        self._exchange = exchange
        self._try_out = try_out
        self._backoff_s = backoff_s
        self._max_backoff_s = max_backoff_s
        self._around = Surroundings(worker.name, worker.instance, exchange, clock, worker.kv_wait_s)
        self._role = worker.role
        self._session: aiohttp.ClientSession | None = None
        self._watch: Watch | None = None
        self._work: Work | None = None
        self._handshakes: Handshakes | None = None
        self._past: list[Work] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return self._address

    def start(self) -> None:
        self._session = new_session(self._worker.api_key)
        calls = Calls(self._session, self._worker.url)
        self._task = asyncio.get_running_loop().create_task(self._stay_connected(calls))

    def send(self, order: Order) -> bool:
        work = self._work
        if work is None:
            return False
        if isinstance(order, SetRole):
            self._set_role(work, order.role)
        elif isinstance(order, Pair):
            if self._handshakes is not None:
                self._handshakes.ask(order.worker)
        else:
            work.do(order)
            if isinstance(order, Drain):
                self._report()
        return True

    def drop(self, reason: str) -> None:
        if self._disconnect():
            self._events.lost(self, reason)

    async def close(self) -> None:
        shaking = [] if self._handshakes is None else self._handshakes.stop()
        self._disconnect()
        await asyncio.gather(*shaking, return_exceptions=True)
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for work in self._past:
            await work.close()
        if self._session is not None:
            await self._session.close()

    # Member

    @property
    def worker(self) -> WorkerId:
        return self._worker.name

    @property
    def role(self) -> str:
        return self._role

    @property
    def speaks(self) -> str:
        return "" if self._dialect is None else self._dialect.name

    @property
    def instance(self) -> Instance:
        return self._worker.instance

    def company_changed(self) -> None:
        self._report()

    async def whole(self, request: GenerateRequest, asked: Asked) -> Event:
        if self._work is None:
            raise LegFailed("engine", "it is not connected", unreachable=True)
        return await self._work.whole(request, asked)

    async def failed_transfers(self) -> int:
        if self._watch is None:
            raise LegFailed("engine", "it is not connected", unreachable=True)
        return (await self._watch.read_now()).failed_transfers

    # Inside

    async def _stay_connected(self, calls: Calls) -> None:
        pause = self._backoff_s
        while True:
            try:
                found = await probe(calls, self._worker)
            except LegFailed as error:
                log.debug("worker %s is not ready: %s", self._worker.name, error)
            else:
                watch = self._connected(calls, found)
                if self._watch is watch:
                    pause = self._backoff_s
                    self.drop(await watch.until_lost())
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._max_backoff_s)

    def _connected(self, calls: Calls, found: Found) -> Watch:
        """What this leads to may drop the worker again."""
        for work in [work for work in self._past if not work.running]:
            self._past.remove(work)
        watch = Watch(calls, found.reading, self._report, self._around.clock)
        self._watch = watch
        self._work = Work(
            self._worker,
            self._dialect,
            self._around,
            calls,
            found.endpoint,
            self._received,
            watch.look_now,
        )
        if self._dialect is not None:
            self._handshakes = Handshakes(
                self, self._dialect, self._exchange, self._try_out, self._around.clock
            )
        self._exchange.join(self)
        self._events.connecting(self)
        self._events.welcomed(self, welcome(self._worker, found, self.speaks))
        self._report()
        return watch

    def _disconnect(self) -> bool:
        """Whatever runs there is cut off; False when nothing was connected."""
        watch, work = self._watch, self._work
        self._watch = self._work = None
        if watch is None or work is None:
            return False
        self._exchange.leave(self)
        if self._handshakes is not None:
            self._handshakes.stop()
            self._handshakes = None
        watch.stop("given up")
        work.stop()
        self._past.append(work)
        return True

    def _received(self, message: Message) -> None:
        self._events.received(self, message)

    def _report(self) -> None:
        watch, work = self._watch, self._work
        if watch is not None and work is not None:
            linked = self._exchange.writers(self.worker)
            busy, draining = work.busy, work.draining
            work.tell(watch.load(busy=busy, linked=linked, draining=draining, role=self._role))

    def _set_role(self, work: Work, role: str) -> None:
        """What runs goes on: an instance of vLLM is what each request makes of it."""
        refused = self._why_not(role)
        if not refused:
            self._role = role
        work.tell(RoleSet(self._role, refused))
        self._report()

    def _why_not(self, role: str) -> str:
        if role not in ROLES:
            return f"{role!r} is no role"
        missing = missing_facts(self._worker, self._dialect, role)
        return f"{self.speaks} needs {', '.join(missing)} of it for that" if missing else ""
