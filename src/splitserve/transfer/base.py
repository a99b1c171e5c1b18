"""Connector: moves KV bytes between two workers' pools. It sees integers, never tensors.

One connector per pool; ``sharded`` joins those of a worker. A pool's owner calls ``open`` and hands
``describe()`` to its peers; a peer calls ``connect`` with those bytes and then ``writer`` to push
into that pool or ``reader`` to pull from it. All calls come from the engine's thread unless said
otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NewType, Protocol

from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.plan import Span

PeerId = NewType("PeerId", int)
"""A connected remote pool, as this connector numbers it."""

TransferId = NewType("TransferId", int)
"""One started write or read."""


@dataclass(frozen=True, slots=True)
class TransferEvent:
    """The end of one transfer, reported exactly once. ``error`` is empty when all is in place."""

    transfer: TransferId
    state: Literal["done", "failed"]
    nbytes: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """How bytes get to a peer and from it: ``memory``, ``shm``, ``cuda_ipc``, ``rdma`` or ``tcp``,
    as far as the connector knows; empty where it does not.

    ``passed`` says of ways that this connector might have taken why it did not.
    """

    way: str
    passed: Mapping[str, str] = field(default_factory=dict)


class LayerWriter(Protocol):
    """Writes one set of spans, layer by layer, from this pool into a peer's."""

    def write(self, layer: int) -> TransferId:
        """Starts copying the spans of ``layer``, as they are once all work that this process has
        given its device so far is done. Never waits, not for the device and not for the peer.

        The source's bytes must stay as they are until the end is reported.
        """
        ...


class LayerReader(Protocol):
    """Reads one set of spans, layer by layer, from a peer's pool into this one."""

    def read(self, layer: int) -> TransferId:
        """Starts bringing the spans of ``layer``, as they are at the peer from now on until the end
        is reported: the peer must not change them meanwhile. Never waits.

        After a ``done`` event the bytes are in this pool, visible to its engine.
        """
        ...


class Connector(Protocol):
    """The promise: after a write's ``done`` event the bytes are visible to the peer's engine, after
    a read's to our own; after ``disconnect`` returns no write to that peer and no read from it is
    under way. A transfer whose peer dies or stalls ends as ``failed``, or stays open until
    ``disconnect``; it never ends as ``done``."""

    def open(self, region: MemoryRegion, layout: KVLayout) -> None:
        """Makes this worker's pool usable as source and, where the path allows, as target.

        Raises ConfigError when the memory cannot be used (not shared, wrong device).
        """
        ...

    def describe(self) -> bytes:
        """What a peer needs to reach this pool; opaque, small, free of secrets."""
        ...

    def connect(self, peer: bytes) -> PeerId:
        """Opens the peer's pool. Raises TransferFailed (cannot be reached) or ProtocolMismatch
        (another connector's, or layouts that cannot be copied between; plan.NoSharedHeads where
        nothing but the heads they hold forbids it). May block for the length of a handshake."""
        ...

    def layouts(self, peer: PeerId) -> tuple[KVLayout, KVLayout]:
        """Our layout and the peer's, which ``plan.spans`` asks for. Raises BugError for a peer that
        is not connected."""
        ...

    def route(self, peer: PeerId) -> Route:
        """Raises BugError for a peer that is not connected."""
        ...

    def writer(self, peer: PeerId, spans: Sequence[Span]) -> LayerWriter:
        """Prepares to copy ``spans`` of any layer, from this pool (source) to the peer's (target),
        so that each layer costs the engine's thread little, however many spans there are. Raises
        BugError for bytes outside either pool.

        Writes to a peer that is not connected any more end as failed.
        """
        ...

    def reader(self, peer: PeerId, spans: Sequence[Span]) -> LayerReader:
        """As ``writer``, from the peer's pool (source) to this one (target)."""
        ...

    def poll(self) -> list[TransferEvent]:
        """Ends that came since the last call. Never blocks."""
        ...

    def disconnect(self, peer: PeerId) -> None:
        """Stops all transfers with the peer and forgets it; ``poll`` then tells the end of each.
        Unknown peers are ignored."""
        ...

    def close(self) -> None:
        """Disconnects all and gives the memory back. May be called twice."""
        ...
