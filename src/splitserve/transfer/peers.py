"""The peers of one connector: what they tell of their pools, and the numbers they go by."""

from itertools import count
from typing import Protocol, TypeVar

import msgspec

from splitserve.errors import BugError, ProtocolMismatch
from splitserve.protocol.memory import KVLayout
from splitserve.transfer.base import PeerId
from splitserve.transfer.plan import check_reachable


class _HasLayout(Protocol):
    @property
    def layout(self) -> KVLayout: ...


class _Described(_HasLayout, Protocol):
    @property
    def nbytes(self) -> int: ...


_Peer = TypeVar("_Peer", bound=_HasLayout)
_Pool = TypeVar("_Pool", bound=_Described)


class Peers(dict[PeerId, _Peer]):
    """Those that are connected. No two ever have the same number."""

    def __init__(self) -> None:
        super().__init__()
        self._ids = count(1)

    def new_id(self) -> PeerId:
        return PeerId(next(self._ids))

    def add(self, peer: _Peer) -> PeerId:
        peer_id = self.new_id()
        self[peer_id] = peer
        return peer_id

    def layout(self, peer: PeerId) -> KVLayout:
        """Raises BugError for a peer that is not connected."""
        return self.known(peer).layout

    def known(self, peer: PeerId) -> _Peer:
        """Raises BugError for a peer that is not connected."""
        if peer not in self:
            raise BugError(f"peer {peer} is not connected")
        return self[peer]


def described(peer: bytes, told: type[_Pool], connector: str, own: KVLayout) -> _Pool:
    """The pool that ``peer`` describes, in the form ``told`` that ``connector`` uses.

    Raises ProtocolMismatch for what another connector says, and for a pool that KV cannot be copied
    to and from; it is NoSharedHeads where that is only since it holds others.
    """
    try:
        pool = msgspec.msgpack.decode(peer, type=told)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolMismatch(f"peer is not of connector {connector}: {error}") from error
    check_reachable(own, pool.layout, pool.nbytes)
    return pool
