"""What one vLLM instance does for this gateway, from one connect to the loss that ends it.

vLLM knows nothing of handoffs: what the router's messages ask for is put together here. Reserve is
granted at once and remembered; Prefill sends the prefill leg; its answer goes through the Exchange
to the work of the decode instance, which sends the decode leg (``prefill.py``, ``decode.py``).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from splitserve.ids import RequestId
from splitserve.protocol.codec import Message
from splitserve.protocol.control import Abort, Drain, Failed, Holding, Inventory, Submit
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.handoff import Grant, GrantTarget, Prefill, Refuse, Reserve
from splitserve.router.workers.vllm import bodies
from splitserve.router.workers.vllm.answers import Event
from splitserve.router.workers.vllm.bodies import Asked, Endpoint
from splitserve.router.workers.vllm.calls import Calls
from splitserve.router.workers.vllm.decode import DecodePart
from splitserve.router.workers.vllm.desk import Part, Surroundings
from splitserve.router.workers.vllm.dialects.base import Dialect
from splitserve.router.workers.vllm.failure import LegFailed
from splitserve.router.workers.vllm.prefill import LOST_DECODE, PrefillPart
from splitserve.router.workers.vllm.settings import VllmWorker
from splitserve.router.workers.vllm.whole import WholePart

log = logging.getLogger(__name__)

Task = Submit | Reserve | Prefill | Abort | Inventory | Drain
"""The orders that are about requests."""


class Work:
    """The Desk of the parts of requests that run there. ``deliver`` takes messages to the router;
    ``suspect`` is told when the instance failed at a request."""

    def __init__(
        self,
        worker: VllmWorker,
        dialect: Dialect | None,
        around: Surroundings,
        calls: Calls,
        endpoint: Endpoint,
        deliver: Callable[[Message], None],
        suspect: Callable[[], None],
    ) -> None:
        self.around = around
        self._worker = worker
        self._dialect = dialect
        self._calls = calls
        self._endpoint = endpoint
        self._deliver = deliver
        self._suspect = suspect
        self._parts: dict[RequestId, Part] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox: list[Message] = []
        self._stopped = False
        self._grace: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Requests run there."""
        return bool(self._parts)

    @property
    def running(self) -> bool:
        """Something is still under way there, also of requests that have ended."""
        return bool(self._tasks)

    @property
    def draining(self) -> bool:
        return self._grace is not None

    def do(self, order: Task) -> None:
        """Never calls back before it returns."""
        match order:
            case Submit():
                self._submit(order)
            case Reserve():
                self._reserve(order)
            case Prefill():
                self._prefill(order)
            case Abort():
                self._abort(order.request_id)
            case Inventory():
                self.tell(Holding(order.serial, tuple(self._parts)))
            case Drain():
                self._drain(order.grace_s)

    def stop(self) -> None:
        """Cuts off whatever runs. Nothing is told any more."""
        self._stopped = True
        if self._grace is not None:
            self._grace.cancel()
        for request_id in list(self._parts):
            self._abort(request_id)

    async def close(self) -> None:
        """``stop``, and returns once nothing runs."""
        self.stop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Desk

    def tell(self, message: Message) -> None:
        """On a later turn of the event loop: the router is in the middle of something when it
        sends an order, and what was told first has to arrive first."""
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._empty_outbox)
        self._outbox.append(message)

    def end(self, request_id: RequestId) -> None:
        self._parts.pop(request_id, None)

    def fail(self, request_id: RequestId, failure: LegFailed) -> None:
        self.tell(Failed(request_id, failure.code, failure.reason, failure.param))
        self.end(request_id)
        if failure.code == "engine":
            self._suspect()

    def spawn(self, request_id: RequestId, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, request_id))
        return task

    async def stream(
        self,
        request: GenerateRequest,
        asked: Asked,
        opened: Callable[[], None],
        take: Callable[[Event], None],
    ) -> None:
        body = bodies.encode(self._endpoint, request, asked)
        await self._calls.stream(self._endpoint.path, body, asked.headers, opened, take)

    async def whole(self, request: GenerateRequest, asked: Asked) -> Event:
        body = bodies.encode(self._endpoint, request, asked)
        return await self._calls.whole(self._endpoint.path, body, asked.headers)

    # Orders

    def _submit(self, order: Submit) -> None:
        request_id = order.request.request_id
        if self.draining:
            self.tell(Failed(request_id, "draining", "takes nothing new"))
        else:
            self._parts[request_id] = WholePart(self, order)

    def _reserve(self, order: Reserve) -> None:
        refusal = self._refusal(order)
        if refusal is not None:
            self.tell(refusal)
            return
        assert self._dialect is not None
        self._parts[order.request.request_id] = DecodePart(self, order, self._dialect)
        link = f"{order.writer}>{self._worker.name}"
        self.tell(Grant(GrantTarget(order.handoff, 0, self._worker.name, link, 0, ()), 0))

    def _refusal(self, order: Reserve) -> Refuse | None:
        seats = self._worker.max_num_seqs
        if self.draining:
            return Refuse(order.handoff, "draining", "takes nothing new", retryable=True)
        if order.writer not in self.around.exchange.writers(self._worker.name):
            reason = f"cannot take KV from {order.writer}"
            return Refuse(order.handoff, "not_linked", reason, retryable=False)
        if seats is not None and len(self._parts) >= seats:
            reason = f"runs {seats} requests already"
            return Refuse(order.handoff, "no_blocks", reason, retryable=True)
        return None

    def _prefill(self, order: Prefill) -> None:
        request_id = order.request.request_id
        side = self.around.exchange.take(order.target.handoff)
        if self.draining:
            self.tell(Failed(request_id, "draining", "takes nothing new"))
        elif side is None or self._dialect is None:
            self.tell(Failed(request_id, LOST_DECODE.code, LOST_DECODE.reason))
        else:
            self._parts[request_id] = PrefillPart(self, order, self._dialect, side)

    def _abort(self, request_id: RequestId) -> None:
        part = self._parts.pop(request_id, None)
        if part is not None:
            part.abort()

    def _drain(self, grace_s: float) -> None:
        """The process is not ours to end: it takes nothing new until it is lost."""
        if self._grace is None:
            loop = asyncio.get_running_loop()
            self._grace = loop.call_later(grace_s, self._hand_back)

    def _hand_back(self) -> None:
        for request_id in list(self._parts):
            self._abort(request_id)
            self.fail(request_id, LegFailed("draining", "leaves"))

    # Inside

    def _empty_outbox(self) -> None:
        messages, self._outbox = self._outbox, []
        for message in messages:
            if self._stopped:
                return
            self._deliver(message)

    def _ended(self, request_id: RequestId, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("request %s at %s", request_id, self._worker.name, exc_info=error)
            if request_id in self._parts:
                self.fail(request_id, LegFailed("engine", "the gateway failed at it"))
