"""Copies by NIXL, through UCX: RDMA between hosts, CUDA IPC or the kernel within one, else TCP.

UCX chooses the way by itself (``UCX_TLS`` limits it; it must leave tcp or an RDMA transport, since
shared memory alone tells no peer's death). On one host and the CPU that is a copy by the kernel
(cma), which needs the right to trace the other process: the same user, and no seccomp profile that
forbids it.

Over TCP the receiving process itself puts the bytes in place. So a writer that dies while its peer
is frozen may leave bytes that land when the peer thaws; the other ways have no such rest.
"""

import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Final, Protocol

import msgspec

from splitserve.errors import BugError, ConfigError, ProtocolMismatch
from splitserve.loading import load
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import LayerReader, LayerWriter, PeerId, TransferEvent, TransferId
from splitserve.transfer.ends import Ends, GonePeer
from splitserve.transfer.nixl.agent import NixlAgent, Operation
from splitserve.transfer.nixl.driver import Driver
from splitserve.transfer.nixl.pairs import Pairs, Place
from splitserve.transfer.nixl.path import Way, host_id, likely_way, open_ways
from splitserve.transfer.nixl.started import Agent, LayerCopy, Mark, Start
from splitserve.transfer.plan import Span, check_layer, check_own, check_reachable, check_spans

log = logging.getLogger(__name__)

PATIENCE_S: Final = 1.0
"""How long ``disconnect`` lets a peer finish what is open with it."""


class Marks(Protocol):
    """What the connector needs of a GPU. ``transfer/cuda/stored.py`` has it."""

    def enter(self) -> None:
        """Makes the GPU current in the calling thread."""
        ...

    def mark(self) -> Mark:
        """Ends when all is done that the engine has given the device so far. Never waits."""
        ...


class _Pool(msgspec.Struct, frozen=True):
    """What ``describe`` says. ``metadata`` is that of agent ``name``, in NIXL's own form."""

    name: str
    metadata: bytes
    host: str
    ways: list[Way]
    device: Annotated[str, msgspec.Meta(pattern=r"^(cpu|cuda:\d{1,3})$")]
    address: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    nbytes: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    layout: KVLayout

    def place(self) -> Place:
        return Place(self.address, self.layout.layer_bytes, self.device)


class NamedAgent(Agent, Protocol):
    """``nixl.agent.NixlAgent``."""

    name: str


@dataclass(frozen=True, slots=True)
class _Own:
    driver: Driver
    marks: Marks | None
    pool: _Pool


class NixlConnector:
    """Any two hosts that UCX can join."""

    def __init__(
        self,
        open_agent: Callable[[MemoryRegion], NamedAgent] = NixlAgent,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._open_agent = open_agent
        self._patience_s = patience_s
        self._opened: _Own | None = None
        self._peers: dict[PeerId, _Pool] = {}
        self._ids = count(1)
        self._ends = Ends()

    def open(self, region: MemoryRegion, layout: KVLayout) -> None:
        check_own(layout, region.nbytes)
        marks = _marks(region.device)
        names: list[str] = []

        def open_agent() -> Agent:
            agent = self._open_agent(region)
            names.append(agent.name)
            return agent

        driver = Driver(open_agent, _nothing if marks is None else marks.enter)
        pool = _Pool(
            names[0],
            driver.ask(lambda copies: copies.metadata()),
            host_id(),
            open_ways(region.device),
            region.device,
            region.address,
            region.nbytes,
            layout,
        )
        self._opened = _Own(driver, marks, pool)

    def describe(self) -> bytes:
        return msgspec.msgpack.encode(self._own().pool)

    def connect(self, peer: bytes) -> PeerId:
        own = self._own()
        pool = _decode(peer)
        check_reachable(own.pool.layout, pool.layout, pool.nbytes)
        peer_id = PeerId(next(self._ids))
        own.driver.ask(lambda copies: copies.connect(peer_id, pool.name, pool.metadata))
        self._peers[peer_id] = pool
        return peer_id

    def layouts(self, peer: PeerId) -> tuple[KVLayout, KVLayout]:
        if peer not in self._peers:
            raise BugError(f"peer {peer} is not connected")
        return self._own().pool.layout, self._peers[peer].layout

    def way(self, peer: PeerId) -> Way | None:
        """The way that bytes probably take to and from ``peer``; None if unknown."""
        own, theirs = self._own().pool, self._peers.get(peer)
        if theirs is None:
            return None
        return likely_way(own.host, own.ways, theirs.host, theirs.ways)

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
        write may still, where the peer is frozen and the way is TCP; this connector does not
        connect to that pool again before it has.
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
        copier = _Copier(self, copy)
        # NIXL's tables are dropped by the thread that made them, whoever lets go of the copier.
        driver = self._own().driver
        weakref.finalize(copier, driver.submit, lambda copies: copies.disown(copy)).atexit = False
        return copier

    def _own(self) -> _Own:
        if self._opened is None:
            raise BugError("connector is used before open")
        return self._opened


class _Copier:
    """The LayerWriter and LayerReader."""

    def __init__(self, connector: NixlConnector, copy: LayerCopy) -> None:
        self._connector = connector
        self._copy = copy

    def write(self, layer: int) -> TransferId:
        return self._connector.start(self._copy, layer)

    def read(self, layer: int) -> TransferId:
        return self._connector.start(self._copy, layer)


def _marks(device: str) -> Marks | None:
    """None for memory of the host. Raises ConfigError."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return None
    if kind != "cuda" or not number.isdigit():
        raise ConfigError(f"connector nixl knows no device {device}: choose cpu or cuda:N")
    marks: Marks = load("splitserve.transfer.cuda.stored:StoredMarks")(int(number))
    return marks


def _decode(peer: bytes) -> _Pool:
    try:
        return msgspec.msgpack.decode(peer, type=_Pool)
    except msgspec.DecodeError as error:
        raise ProtocolMismatch(f"peer is not of connector nixl: {error}") from error


def _nothing() -> None:
    """A thread that uses the host's memory needs no preparation."""
