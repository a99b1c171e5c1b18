"""Connector: moves KV bytes between two workers' pools. It sees integers, never tensors.

One connector per worker. The receiving side calls ``open`` and hands ``describe()`` to writers;
the writing side calls ``connect`` with those bytes and then ``write``. All calls come from the
engine's thread unless said otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NewType, Protocol

from splitserve.protocol.memory import Copy, KVLayout, MemoryRegion

PeerId = NewType("PeerId", int)
"""A connected remote pool, as this connector numbers it."""

TransferId = NewType("TransferId", int)
"""One started write."""


@dataclass(frozen=True, slots=True)
class TransferEvent:
    """The end of one write, reported exactly once. ``error`` is empty when all is in place."""

    transfer: TransferId
    state: Literal["done", "failed"]
    nbytes: int
    error: str = ""


class Connector(Protocol):
    """The promise: after a ``done`` event the bytes are visible to the peer's engine, and after
    ``disconnect`` returns no write to that peer is under way."""

    def open(self, region: MemoryRegion, layout: KVLayout) -> None:
        """Makes this worker's pool usable as source and, where the path allows, as target.

        Raises ConfigError when the memory cannot be used (not shared, wrong device).
        """
        ...

    def describe(self) -> bytes:
        """What a peer needs to write into this pool; opaque, small, free of secrets."""
        ...

    def connect(self, peer: bytes) -> PeerId:
        """Opens the peer's pool. Raises TransferFailed (cannot be reached) or ProtocolMismatch
        (layouts that cannot be copied between). May block for the length of a handshake."""
        ...

    def layout(self, peer: PeerId) -> KVLayout:
        """The peer pool's layout."""
        ...

    def write(self, peer: PeerId, copies: Sequence[Copy]) -> TransferId:
        """Starts copying from this pool into the peer's. Never waits for the peer."""
        ...

    def poll(self) -> list[TransferEvent]:
        """Ends that came since the last call. Never blocks."""
        ...

    def disconnect(self, peer: PeerId) -> None:
        """Stops all writes to the peer and forgets it. Unknown peers are ignored."""
        ...

    def close(self) -> None:
        """Disconnects all and gives the memory back. May be called twice."""
        ...
