"""How roles speak to the outside: one small seam, so that they hold no socket."""

from typing import NewType, Protocol

from splitserve.ids import WorkerId
from splitserve.protocol.codec import Message

ConnId = NewType("ConnId", int)
"""A connection (from a gateway, from or to another worker), as the server numbers it."""


class Port(Protocol):
    """All calls return at once."""

    def send(self, conn: ConnId, message: Message) -> None:
        """Queues a frame. A connection that is gone is ignored: its loss is reported apart."""
        ...

    def open_link(self, worker: WorkerId, address: str) -> None:
        """Asks for a connection to another worker; ends in a ``link_opened`` call or in silence."""
        ...

    def close(self, conn: ConnId) -> None:
        """Closes a connection from our side; no loss is reported."""
        ...
