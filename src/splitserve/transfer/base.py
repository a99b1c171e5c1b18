"""Connector: moves KV bytes between two workers' pools. It sees integers, never tensors.

One connector per worker. The receiving side calls ``open`` and hands ``describe()`` to writers;
the writing side calls ``connect`` with those bytes and then ``writer``. All calls come from the
engine's thread unless said otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NewType, Protocol

from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.plan import BlockRun

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


class LayerWriter(Protocol):
    """Writes one set of blocks, layer by layer, from this pool into a peer's."""

    def write(self, layer: int) -> TransferId:
        """Starts copying the blocks of ``layer``, as they are once all work that this process has
        given its device so far is done. Never waits, not for the device and not for the peer."""
        ...


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

    def writer(self, peer: PeerId, runs: Sequence[BlockRun]) -> LayerWriter:
        """Prepares to copy ``runs`` of any layer, so that each layer costs the engine's thread
        little, however many blocks there are. Raises BugError for blocks outside either pool.

        Writes to a peer that is not connected any more end as failed.
        """
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
