"""One socket of a worker: bytes to messages and back."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from splitserve.errors import ProtocolMismatch
from splitserve.protocol.codec import FrameDecoder, Message
from splitserve.roles.port import ConnId

log = logging.getLogger(__name__)

MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""A peer that reads nothing for so long is cut off: its frames must not fill our memory."""


class Connection(asyncio.Protocol):
    """Reports messages and the end of the connection; writes never block."""

    def __init__(
        self,
        conn: ConnId,
        on_message: Callable[[ConnId, Message], None],
        on_lost: Callable[[ConnId], None],
        on_made: "Callable[[Connection], None]",
    ) -> None:
        self.conn = conn
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_made = on_made
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports implement the interface without deriving from it.
        self._transport = cast("asyncio.Transport", transport)
        self._on_made(self)

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._decoder.feed(data)
        except ProtocolMismatch as error:
            log.error("closing connection %d: %s", self.conn, error)
            self.abort()
            return
        for message in messages:
            self._on_message(self.conn, message)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            log.debug("connection %d ended: %s", self.conn, exc)
        self._on_lost(self.conn)

    def write(self, frame: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(frame)
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            log.error("connection %d does not read; cutting it off", self.conn)
            self.abort()

    def close(self) -> None:
        """After what is queued has left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """At once."""
        if self._transport is not None:
            self._transport.abort()
