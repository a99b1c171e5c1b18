"""One socket that carries frames: bytes to messages and back, for whichever side holds it."""

import asyncio
import logging
import ssl
from typing import Final, Protocol, cast

from splitserve.errors import ProtocolMismatch
from splitserve.protocol.address import TcpAddress, UnixAddress
from splitserve.protocol.codec import FrameDecoder, Message
from splitserve.protocol.doorway import Doorway
from splitserve.protocol.gate import SECRET_VARIABLE, Gate
from splitserve.protocol.handshake import GREETING, Side

log = logging.getLogger(__name__)

MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""A peer that reads nothing for so long is cut off: its frames must not fill our memory."""


_SECRET_ASKED: Final = (
    f"it asks for the shared secret: give this process --secret-file or {SECRET_VARIABLE}"
)


class Listener(Protocol):
    """Who is told what a connection brings. Called on the event loop."""

    def made(self, connection: "Connection") -> None: ...

    def received(self, connection: "Connection", messages: list[Message]) -> None:
        """All messages that one read completed, in order."""
        ...

    def lost(self, connection: "Connection", reason: str) -> None:
        """Once per connection that was made."""
        ...


class Connection(asyncio.Protocol):
    """Writes never block. ``name`` is for people; ``ended`` is set when the socket is closed."""

    def __init__(self, name: str, listener: Listener) -> None:
        self.name = name
        self.ended = asyncio.Event()
        self._listener = listener
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._complaint = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports implement the interface without deriving from it.
        self._transport = cast("asyncio.Transport", transport)
        self._listener.made(self)

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._decoder.feed(data)
        except ProtocolMismatch as error:
            asked = data.startswith(GREETING)
            self._cut_off(_SECRET_ASKED if asked else str(error))
            return
        self._listener.received(self, messages)

    def connection_lost(self, exc: Exception | None) -> None:
        ended = "the connection closed" if exc is None else str(exc)
        self._listener.lost(self, self._complaint or ended)
        self.ended.set()

    def write(self, frame: bytes) -> None:
        """A closed connection is ignored: its loss is reported apart."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(frame)
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._cut_off("the peer does not read")

    def close(self) -> None:
        """After what is queued has left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """At once."""
        if self._transport is not None:
            self._transport.abort()

    def _cut_off(self, complaint: str) -> None:
        log.error("closing the connection to %s: %s", self.name, complaint)
        self._complaint = complaint
        self.abort()


async def connect(
    address: UnixAddress | TcpAddress, connection: Connection, gate: Gate | None = None
) -> None:
    """Returns when frames may be sent. Raises OSError when nobody answers there, or nobody who
    passes ``gate``."""
    loop = asyncio.get_running_loop()
    if isinstance(address, UnixAddress):
        await loop.create_unix_connection(lambda: connection, address.path)
        return
    gate = gate or Gate()
    tls = None if gate.tls is None else gate.tls.opening
    side = gate.opener()
    if side is None:
        await loop.create_connection(lambda: connection, address.host, address.port, ssl=tls)
        return
    await _proven(loop, address, connection, side, tls)


async def _proven(
    loop: asyncio.AbstractEventLoop,
    address: TcpAddress,
    connection: Connection,
    side: Side,
    tls: ssl.SSLContext | None,
) -> None:
    passed: asyncio.Future[None] = loop.create_future()

    def enter() -> Connection:
        passed.set_result(None)
        return connection

    def refused(_: str, reason: str) -> None:
        if not passed.done():
            passed.set_exception(ConnectionRefusedError(f"no handshake with the peer: {reason}"))

    transport, _ = await loop.create_connection(
        lambda: Doorway(side, enter, refused), address.host, address.port, ssl=tls
    )
    try:
        await passed
    except asyncio.CancelledError:
        transport.abort()
        raise
