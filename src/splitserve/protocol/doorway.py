"""A connection before its peer is known: runs the handshake, then hands the socket over."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from splitserve.protocol.handshake import Refused, Side

HANDSHAKE_S: Final = 5.0
"""A peer of ours needs milliseconds."""


class Doorway(asyncio.Protocol):
    """``enter`` makes the protocol that takes the socket over once ``side`` is done.

    Exactly one of ``enter`` and ``refused`` (with the peer's address and why) is called, unless the
    event loop ends first. ``made`` is called when the connection is there and nothing is proven.
    """

    def __init__(
        self,
        side: Side,
        enter: Callable[[], asyncio.Protocol],
        refused: Callable[[str, str], None],
        *,
        made: Callable[["Doorway"], None] | None = None,
        timeout_s: float = HANDSHAKE_S,
    ) -> None:
        self._made = made
        self._side = side
        self._enter = enter
        self._refused = refused
        self._timeout_s = timeout_s
        self._over = False
        self._peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports implement the interface without deriving from it.
        self._transport = cast("asyncio.Transport", transport)
        peer: Any = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) else "a peer"
        self._timer = asyncio.get_running_loop().call_later(
            self._timeout_s, self.refuse, f"it proved nothing within {self._timeout_s:g} s"
        )
        if self._made is not None:
            self._made(self)
        if greeting := self._side.start():
            self._transport.write(greeting)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        try:
            answer = self._side.feed(data)
        except Refused as error:
            self.refuse(str(error))
            return
        if answer:
            self._transport.write(answer)
        if self._side.done:
            self._hand_over()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.refuse("it closed the connection before it had proven itself")

    def refuse(self, reason: str) -> None:
        """Cuts the connection off, unless that was decided before."""
        if self._over:
            return
        self._over = True
        self._timer.cancel()
        self._transport.abort()
        self._refused(self._peer, reason)

    def _hand_over(self) -> None:
        self._over = True
        self._timer.cancel()
        protocol = self._enter()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if self._side.rest:
            protocol.data_received(self._side.rest)
