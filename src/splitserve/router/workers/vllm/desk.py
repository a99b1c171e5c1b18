"""What a request's part at one vLLM instance needs of the client it runs in."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from splitserve.clock import Clock
from splitserve.ids import RequestId, WorkerId
from splitserve.protocol.codec import Message
from splitserve.protocol.generate import GenerateRequest
from splitserve.router.workers.vllm.answers import Event
from splitserve.router.workers.vllm.bodies import Asked
from splitserve.router.workers.vllm.dialects.base import Instance
from splitserve.router.workers.vllm.exchange import Exchange
from splitserve.router.workers.vllm.failure import LegFailed


@dataclass(frozen=True, slots=True)
class Surroundings:
    """``kv_wait_s``: see VllmWorker."""

    worker: WorkerId
    instance: Instance
    exchange: Exchange
    clock: Clock
    kv_wait_s: float


class Desk(Protocol):
    """A client, as its parts see it. Nothing here blocks or calls back before it returns."""

    @property
    def around(self) -> Surroundings: ...

    def tell(self, message: Message) -> None:
        """To the router, after all that was told before."""
        ...

    def end(self, request_id: RequestId) -> None:
        """The instance holds nothing of the request any more, as far as the router is concerned."""
        ...

    def fail(self, request_id: RequestId, failure: LegFailed) -> None:
        """Tells Failed, and ``end``."""
        ...

    def spawn(self, request_id: RequestId, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs until it is done, cancelled, or the client closes."""
        ...

    async def stream(
        self,
        request: GenerateRequest,
        asked: Asked,
        opened: Callable[[], None],
        take: Callable[[Event], None],
    ) -> None:
        """See Calls.stream."""
        ...

    async def whole(self, request: GenerateRequest, asked: Asked) -> Event:
        """See Calls.whole."""
        ...


class Part(Protocol):
    """What one instance does of one request."""

    def abort(self) -> None:
        """Forget it, in whatever state it is. Tells nothing."""
        ...
