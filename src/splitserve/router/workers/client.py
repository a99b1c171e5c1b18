"""Seam between router and workers: what can be asked of a worker, what it tells.

``native`` speaks the frames of ``splitserve.protocol``. Other engines get a client of their own
that takes and gives the same messages; nothing above this file knows which it is.
"""

from collections.abc import Callable
from typing import Protocol

from splitserve.protocol.codec import Message
from splitserve.protocol.control import (
    Abort,
    Drain,
    Inventory,
    Pair,
    SetRole,
    Submit,
    Welcome,
)
from splitserve.protocol.handoff import Prefill, Reserve

Order = Pair | Submit | Abort | Drain | SetRole | Inventory | Reserve | Prefill
"""What a gateway may send to a worker."""


class WorkerClient(Protocol):
    """One worker at one address, connected or not. All calls come from one event loop."""

    @property
    def address(self) -> str: ...

    def start(self) -> None:
        """Connects, and again with growing pauses whenever that fails or ends, until ``close``."""
        ...

    def send(self, order: Order) -> bool:
        """Never blocks. False when there is no connection: nothing was sent."""
        ...

    def drop(self, reason: str) -> None:
        """Takes the worker for dead: ``lost`` is told before this returns, then as ``start``."""
        ...

    async def close(self) -> None:
        """Ends the connection for good. Tells nothing any more."""
        ...


class WorkerEvents(Protocol):
    """What a client tells, on the event loop, in the order in which it happened."""

    def connecting(self, client: WorkerClient) -> None:
        """A connection is there; the worker has not said yet who it is."""
        ...

    def welcomed(self, client: WorkerClient, welcome: Welcome) -> None: ...

    def received(self, client: WorkerClient, message: Message) -> None:
        """Everything but Welcome."""
        ...

    def lost(self, client: WorkerClient, reason: str) -> None:
        """The connection ended. Once per ``connecting``."""
        ...


Connect = Callable[[str, WorkerEvents], WorkerClient]
"""Makes the client for an address, not started. Raises ConfigError for one it cannot serve."""
