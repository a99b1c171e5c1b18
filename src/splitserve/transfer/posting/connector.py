"""All that connectors share whose library posts copies from a thread: everything but opening."""

import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Generic, TypeVar

import msgspec

from splitserve.errors import BugError
from splitserve.protocol.memory import KVLayout
from splitserve.transfer.base import LayerReader, LayerWriter, PeerId, TransferEvent, TransferId
from splitserve.transfer.ends import Ends, GonePeer
from splitserve.transfer.peers import Peers, described
from splitserve.transfer.plan import Span, check_layer, check_spans
from splitserve.transfer.posting.driver import Driver
from splitserve.transfer.posting.pairs import Pairs, Place
from splitserve.transfer.posting.started import Agent, LayerCopy, Marks, Operation, Start

log = logging.getLogger(__name__)

PATIENCE_S: Final = 1.0
"""How long ``disconnect`` lets a peer finish what is open with it."""


class Description(msgspec.Struct, frozen=True):
    """What ``describe`` says. ``metadata`` is that of agent ``name``, in the library's own form."""

    name: str
    metadata: bytes
    device: Annotated[str, msgspec.Meta(pattern=r"^(cpu|cuda:\d{1,3})$")]
    address: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    nbytes: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    layout: KVLayout

    def place(self) -> Place:
        return Place(self.address, self.layout.layer_bytes, self.device)


_Pool = TypeVar("_Pool", bound=Description)


@dataclass(frozen=True, slots=True)
class _Own(Generic[_Pool]):
    driver: Driver
    marks: Marks | None
    pool: _Pool


class PostingConnector(Generic[_Pool]):
    """A subclass opens, and says what it tells of a pool."""

    def __init__(self, connector: str, told: type[_Pool], patience_s: float) -> None:
        """``connector`` is what errors call it; ``told`` is how pools are described."""
        self._connector = connector
        self._told = told
        self._patience_s = patience_s
        self._opened: _Own[_Pool] | None = None
        self._peers = Peers[_Pool]()
        self._ends = Ends()

    def describe(self) -> bytes:
        return msgspec.msgpack.encode(self._own().pool)

    def connect(self, peer: bytes) -> PeerId:
        own = self._own()
        pool = described(peer, self._told, self._connector, own.pool.layout)
        peer_id = self._peers.new_id()
        own.driver.ask(lambda copies: copies.connect(peer_id, pool.name, pool.metadata))
        self._peers[peer_id] = pool
        return peer_id

    def layouts(self, peer: PeerId) -> tuple[KVLayout, KVLayout]:
        return self._own().pool.layout, self._peers.layout(peer)

    def writer(self, peer: PeerId, spans: Sequence[Span]) -> LayerWriter:
        theirs = self._peers.get(peer)
        if theirs is None:
            return GonePeer(self._ends)
        return self._copier(peer, "WRITE", spans, self._own().pool, theirs)

    def reader(self, peer: PeerId, spans: Sequence[Span]) -> LayerReader:
        theirs = self._peers.get(peer)
        if theirs is None:
            return GonePeer(self._ends)
        return self._copier(peer, "READ", spans, theirs, self._own().pool)

    def start(self, copy: LayerCopy, layer: int) -> TransferId:
        """For this connector's writers and readers: one layer."""
        if copy.peer not in self._peers:
            return self._ends.not_sent(layer)
        own = self._own()
        check_layer(layer, own.pool.layout)
        transfer = self._ends.begin()
        if not copy.nbytes:
            self._ends.done(transfer, 0)
            return transfer
        start = Start(transfer, copy, layer, None if own.marks is None else own.marks.mark())
        own.driver.submit(lambda copies: copies.start(start))
        return transfer

    def poll(self) -> list[TransferEvent]:
        if self._opened is not None:
            self._take_ends(self._opened.driver)
        return self._ends.take()

    def disconnect(self, peer: PeerId) -> None:
        """Lets open copies end, for a second at most.

        What the peer does not take or give within that fails. A read then cannot land any more. A
        write may still, where the peer is frozen and puts the bytes in place itself, as over TCP;
        this connector does not connect to that pool again before it has.
        """
        if self._peers.pop(peer, None) is None:
            return
        driver = self._own().driver
        left = driver.ask(lambda copies: copies.leave(peer))
        try:
            left.result(self._patience_s)
        except TimeoutError:
            log.warning("a peer was left with copies open: it does not move")
            driver.ask(lambda copies: copies.give_up(peer))

    def close(self) -> None:
        if self._opened is None:
            return
        for peer in list(self._peers):
            self.disconnect(peer)
        driver = self._opened.driver
        self._opened = None
        driver.close()
        self._take_ends(driver)

    def _open(
        self,
        open_agent: Callable[[], Agent],
        marks: Marks | None,
        describe: Callable[[str, bytes], _Pool],
    ) -> None:
        """Starts the thread. ``describe`` is given the first agent's name and metadata."""
        enter = _nothing if marks is None else marks.enter
        driver = Driver(self._connector, open_agent, enter)
        name = driver.ask(lambda copies: copies.name())
        metadata = driver.ask(lambda copies: copies.metadata())
        self._opened = _Own(driver, marks, describe(name, metadata))

    def _take_ends(self, driver: Driver) -> None:
        for end in driver.ends():
            if end.error:
                self._ends.failed(end.transfer, end.error)
            else:
                self._ends.done(end.transfer, end.nbytes)

    def _copier(
        self,
        peer: PeerId,
        operation: Operation,
        spans: Sequence[Span],
        source: _Pool,
        target: _Pool,
    ) -> "_Copier":
        check_spans(spans, source.layout.layer_bytes, target.layout.layer_bytes)
        pairs = Pairs(tuple(spans), source.layout.num_layers, source.place(), target.place())
        copy = LayerCopy(peer, operation, pairs, pairs.nbytes)
        copier = _Copier(self.start, copy)
        # What is prepared is dropped by the thread that made it, whoever lets go of the copier.
        driver = self._own().driver
        weakref.finalize(copier, driver.submit, lambda copies: copies.disown(copy)).atexit = False
        return copier

    def _own(self) -> _Own[_Pool]:
        if self._opened is None:
            raise BugError("connector is used before open")
        return self._opened


class _Copier:
    """The LayerWriter and LayerReader."""

    def __init__(self, start: Callable[[LayerCopy, int], TransferId], copy: LayerCopy) -> None:
        self._start = start
        self._copy = copy

    def write(self, layer: int) -> TransferId:
        return self._start(self._copy, layer)

    def read(self, layer: int) -> TransferId:
        return self._start(self._copy, layer)


def _nothing() -> None:
    """A thread that uses the host's memory needs no preparation."""
