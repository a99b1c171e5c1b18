"""All KV pools of a worker as one: every pool of ours is joined to those of a peer that hold some
of the same heads.

Tensor parallelism shares the model's KV heads out over several pools, and block ``b`` is block
``b`` of each of them. Each worker holds every head once, in however many pools. Where it has one
this is that pool's connector, and a layer costs nothing more.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import msgspec

from splitserve.errors import BugError, ProtocolMismatch
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import (
    Connector,
    LayerReader,
    LayerWriter,
    PeerId,
    Route,
    TransferEvent,
    TransferId,
)
from splitserve.transfer.plan import NoSharedHeads, Span, shared_heads

LONGEST_DESCRIPTION: Final = 1 << 20
"""Bytes. A pool is described in a few hundred, or in thousands where a library adds its own."""


@dataclass(frozen=True, slots=True)
class _Shard:
    """One pool of ours, number ``index`` of ``count``. Its transfers have the numbers that leave
    ``index`` when divided by ``count``, so that those of no two shards are the same."""

    connector: Connector
    index: int
    count: int

    def number(self, transfer: TransferId) -> TransferId:
        return TransferId(transfer * self.count + self.index)

    def poll(self) -> list[TransferEvent]:
        events = self.connector.poll()
        if self.count == 1:
            return events
        return [replace(event, transfer=self.number(event.transfer)) for event in events]


@dataclass(frozen=True, slots=True)
class _Copier:
    """The LayerWriter and LayerReader of one of several shards."""

    shard: _Shard
    start: Callable[[int], TransferId]

    def write(self, layer: int) -> TransferId:
        return self.shard.number(self.start(layer))

    def read(self, layer: int) -> TransferId:
        return self.shard.number(self.start(layer))


@dataclass(frozen=True, slots=True)
class Leg:
    """One pool of ours and one of the peer's that share KV heads. ``peer`` is the latter's number
    at the shard's own connector."""

    ours: KVLayout
    theirs: KVLayout
    shard: _Shard
    peer: PeerId

    def writer(self, spans: Sequence[Span]) -> LayerWriter:
        """As ``Connector.writer``."""
        writer = self.shard.connector.writer(self.peer, spans)
        return writer if self.shard.count == 1 else _Copier(self.shard, writer.write)

    def reader(self, spans: Sequence[Span]) -> LayerReader:
        """As ``Connector.reader``."""
        reader = self.shard.connector.reader(self.peer, spans)
        return reader if self.shard.count == 1 else _Copier(self.shard, reader.read)

    @property
    def heads(self) -> range:
        return shared_heads(self.ours, self.theirs)


@dataclass(frozen=True, slots=True)
class _Own:
    """``layout`` is that of all shards together."""

    layout: KVLayout
    shards: tuple[_Shard, ...]


class ShardedConnector:
    """One connector per pool. The promises are those of ``Connector``; all calls come from the
    engine's thread."""

    def __init__(self, make: Callable[[], Connector]) -> None:
        """``make`` is called once for each pool, by ``open``."""
        self._make = make
        self._opened: _Own | None = None
        self._peers: dict[PeerId, tuple[Leg, ...]] = {}
        self._ids = count(1)

    def open(self, regions: Sequence[MemoryRegion], layout: KVLayout) -> None:
        """``layout`` is that of the whole, of which each region holds its share.

        Raises ConfigError when the memory cannot be used or the heads cannot be shared out, and
        what ``make`` does; nothing is open then.
        """
        shards: list[_Shard] = []
        shares = zip(regions, layout.shards(len(regions)), strict=True)
        with ExitStack() as undo:
            for index, (region, share) in enumerate(shares):
                connector = self._make()
                undo.callback(connector.close)
                connector.open(region, share)
                shards.append(_Shard(connector, index, len(regions)))
            undo.pop_all()
        self._opened = _Own(layout, tuple(shards))

    def describe(self) -> bytes:
        """What a peer needs to reach all pools."""
        return msgspec.msgpack.encode([shard.connector.describe() for shard in self._own().shards])

    def connect(self, peer: bytes) -> PeerId:
        """Opens each of the peer's pools where it holds heads of ours.

        Raises TransferFailed (one cannot be reached) or ProtocolMismatch (another connector's, or
        not each head of the model is in exactly one pool on either side); no pool is open then. May
        block for the length of a handshake per pair of pools.
        """
        own, legs = self._own(), list[Leg]()
        with ExitStack() as undo:
            for pool in _pools(peer, own.layout):
                for shard in own.shards:
                    leg = _leg(shard, pool)
                    if leg is not None:
                        undo.callback(shard.connector.disconnect, leg.peer)
                        _check_beside(leg, legs)
                        legs.append(leg)
            _check_whole(legs, own.layout)
            undo.pop_all()
        peer_id = PeerId(next(self._ids))
        self._peers[peer_id] = tuple(legs)
        return peer_id

    def legs(self, peer: PeerId) -> tuple[Leg, ...]:
        """One at least; together they are all heads of the model, each once. The peer's block sizes
        and numbers of blocks are the same in all. Raises BugError for a peer that is not
        connected."""
        if peer not in self._peers:
            raise BugError(f"peer {peer} is not connected")
        return self._peers[peer]

    def route(self, peer: PeerId) -> Route:
        """Of all pools of the peer: they lie in one process. Raises BugError for a peer that is not
        connected."""
        first = self.legs(peer)[0]
        return first.shard.connector.route(first.peer)

    def poll(self) -> list[TransferEvent]:
        """Ends that came since the last call; those of one pool in their order. Never blocks."""
        if self._opened is None:
            return []
        return [event for shard in self._opened.shards for event in shard.poll()]

    def disconnect(self, peer: PeerId) -> None:
        """Stops all transfers with the peer and forgets it; ``poll`` then tells the end of each.
        Unknown peers are ignored. Pools are left one after another: where the peer hangs, that
        takes as long as the connector's own ``disconnect`` for each."""
        for leg in self._peers.pop(peer, ()):
            leg.shard.connector.disconnect(leg.peer)

    def close(self) -> None:
        """Disconnects all and gives the memory back. May be called twice."""
        self._peers.clear()
        with ExitStack() as closing:
            for shard in () if self._opened is None else self._opened.shards:
                closing.callback(shard.connector.close)

    def _own(self) -> _Own:
        if self._opened is None:
            raise BugError("the connectors are used before open")
        return self._opened


def _pools(peer: bytes, own: KVLayout) -> list[bytes]:
    """What each of the peer's pools says of itself. Raises ProtocolMismatch."""
    if len(peer) > LONGEST_DESCRIPTION:
        raise ProtocolMismatch(
            f"the peer describes its KV in {len(peer)} bytes (limit {LONGEST_DESCRIPTION})"
        )
    try:
        pools = msgspec.msgpack.decode(peer, type=list[bytes])
    except msgspec.DecodeError as error:
        raise ProtocolMismatch(f"the peer describes no KV pools: {error}") from error
    if not 1 <= len(pools) <= own.model_kv_heads:
        raise ProtocolMismatch(
            f"the peer describes {len(pools)} KV pools for {own.model_kv_heads} KV heads"
        )
    return pools


def _leg(shard: _Shard, pool: bytes) -> Leg | None:
    """None for pools that share no head, which need not know each other."""
    try:
        peer = shard.connector.connect(pool)
    except NoSharedHeads:
        return None
    return Leg(*shard.connector.layouts(peer), shard, peer)


def _check_beside(leg: Leg, others: Sequence[Leg]) -> None:
    """Raises ProtocolMismatch unless the peer's pools can be parts of one."""
    for other in others:
        twice = sorted({*leg.heads} & {*other.heads})
        if twice:
            raise ProtocolMismatch(f"several of the peer's KV pools hold heads {twice}")
        for name in ("block_size", "num_blocks"):
            one, another = getattr(other.theirs, name), getattr(leg.theirs, name)
            if one != another:
                raise ProtocolMismatch(f"the peer's KV pools differ in {name}: {one}, {another}")


def _check_whole(legs: Sequence[Leg], own: KVLayout) -> None:
    missing = set(range(own.model_kv_heads)).difference(*(leg.heads for leg in legs))
    if missing:
        raise ProtocolMismatch(f"KV heads {sorted(missing)} are not in pools of both sides")
