"""The copies that are under way, and how a peer is left without one of them landing late.

Two agents: the writing one writes, and is the one that peers are told of; the reading one is made
with the first peer. A read that stalls can only be stopped by ending its agent, which costs the
other peers' reads too, but no write, neither ours nor a peer's. A write that stalls cannot be
stopped at all: its bytes may lie in a frozen peer's socket. So it stays open, and its peer cannot
be connected again before it has ended.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Container
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from splitserve.errors import BugError, ConfigError, PeerError, TransferFailed
from splitserve.transfer.base import PeerId
from splitserve.transfer.posting.started import Agent, End, LayerCopy, Operation, Start

log = logging.getLogger(__name__)

_READ: Final = "READ"


@dataclass(slots=True)
class _Open:
    start: Start
    handle: Any
    told: bool = False


@dataclass(slots=True)
class _Peer:
    """``name`` is its agent's."""

    metadata: bytes
    name: str
    left: Future[None] | None = None
    copies: list[LayerCopy] = field(default_factory=list)


class Copies:
    """Used by one thread."""

    def __init__(self, open_agent: Callable[[], Agent], tell: Callable[[End], None]) -> None:
        self._open_agent = open_agent
        self._tell = tell
        self._writing = open_agent()
        self._reading: Agent | None = None
        self._read_names: set[str] = set()
        self._names: Counter[str] = Counter()
        self._peers: dict[PeerId, _Peer] = {}
        self._waiting: deque[Start] = deque()
        self._open: list[_Open] = []

    def name(self) -> str:
        """That of the agent whose ``metadata`` it is."""
        return self._writing.name

    def metadata(self) -> bytes:
        return self._writing.metadata()

    def connect(self, peer: PeerId, name: str, metadata: bytes) -> None:
        """``name`` is that of the agent whose ``metadata`` it is. Raises TransferFailed, also while
        a write of before has not ended."""
        if any(known.left is not None and known.name == name for known in self._peers.values()):
            raise TransferFailed(
                "an earlier write to this pool has not ended yet: its process does not take bytes; "
                "wait until it does, or end it"
            )
        if (name, metadata) not in [(peer.name, peer.metadata) for peer in self._peers.values()]:
            _join(self._writing, name, metadata, self._names)
        known = _Peer(metadata, name)
        try:
            self._agent_for(_READ, known)
        except TransferFailed:
            if not self._names[name]:
                self._forget(self._writing, name)
            raise
        self._names[name] += 1
        self._peers[peer] = known

    def start(self, start: Start) -> None:
        """Its end is told, now or by a later ``step``."""
        start.copy.users += 1
        self._waiting.append(start)

    def disown(self, copy: LayerCopy) -> None:
        """No more layers of ``copy`` will be started."""
        self._unused(copy)

    def step(self) -> bool:
        """Posts what may be posted and looks at what is open. True when a copy began or ended."""
        moved = self._post_ready()
        still: list[_Open] = []
        for copy in self._open:
            if self._has_ended(copy):
                moved = True
            else:
                still.append(copy)
        self._open = still
        for peer in [key for key, known in self._peers.items() if known.left is not None]:
            self._leave_if_quiet(peer)
        return moved

    def busy(self) -> bool:
        """Whether there is something for ``step`` to look at."""
        return bool(self._waiting or self._open)

    def leave(self, peer: PeerId) -> Future[None]:
        """Ends when no copy with ``peer`` is open any more. What is not posted yet fails."""
        left: Future[None] = Future()
        known = self._peers.get(peer)
        if known is None or known.left is not None:
            left.set_result(None)
            return left
        known.left = left
        waiting, self._waiting = self._waiting, deque()
        for start in waiting:
            if start.copy.peer == peer:
                self._fail(start, "the peer was disconnected")
            else:
                self._waiting.append(start)
        self._leave_if_quiet(peer)
        return left

    def give_up(self, peer: PeerId) -> None:
        """After this no read from ``peer`` lands here, and all its copies are told as failed.
        ``peer`` was left before."""
        if peer not in self._peers:
            return
        if any(copy.start.copy.peer == peer and _reads(copy) for copy in self._open):
            self._end_reading("a read from another peer, which did not answer, was given up")
        for copy in self._open:
            if copy.start.copy.peer == peer:
                copy.told = True
                self._fail_end(copy.start, "the peer did not take the bytes until it was left")
        self._leave_if_quiet(peer)

    def close(self) -> None:
        """Cuts everything. Peers should have been left before."""
        self._end_reading("the connector was closed")
        for copy in self._open:
            self._release(self._writing, copy.handle)
        self._open.clear()
        for known in self._peers.values():
            for copy_of in list(known.copies):
                self._drop(copy_of)
            self._forget(self._writing, known.name)
        self._peers.clear()
        try:
            self._writing.close()
        except TransferFailed as error:
            log.warning("%s", error)

    def _post_ready(self) -> bool:
        moved = False
        # Marks are of one stream, so they end in order.
        while self._waiting and (self._waiting[0].mark is None or self._waiting[0].mark.ended()):
            moved = True
            self._post(self._waiting.popleft())
        return moved

    def _post(self, start: Start) -> None:
        copy = start.copy
        known = self._peers.get(copy.peer)
        if known is None or known.left is not None:
            self._fail(start, "the peer is not connected")
            return
        try:
            agent = self._agent_for(copy.operation, known)
            if copy.prepared is None:
                copy.prepared = agent.prepare(known.name, copy.operation, copy.pairs)
                known.copies.append(copy)
            handle = agent.post(copy.prepared, copy.pairs.of(start.layer))
        except PeerError as error:
            self._fail(start, str(error))
            return
        opened = _Open(start, handle)
        if not self._has_ended(opened):
            self._open.append(opened)

    def _agent_for(self, operation: Operation, known: _Peer) -> Agent:
        if operation != _READ:
            return self._writing
        if self._reading is None:
            self._reading = self._opened_for_reads()
        if known.name not in self._read_names:
            _join(self._reading, known.name, known.metadata, self._read_names)
            self._read_names.add(known.name)
        return self._reading

    def _opened_for_reads(self) -> Agent:
        try:
            return self._open_agent()
        except ConfigError as error:
            # The first agent could be opened: it is no setting, and the worker lives on.
            raise TransferFailed(f"no agent for reads could be opened: {error}") from error

    def _agent_of(self, operation: Operation) -> Agent:
        """The one that made what there is for ``operation``."""
        if operation != _READ:
            return self._writing
        if self._reading is None:
            raise BugError("something of the reading agent outlived it")
        return self._reading

    def _has_ended(self, copy: _Open) -> bool:
        start = copy.start
        agent = self._agent_of(start.copy.operation)
        try:
            if not agent.ended(copy.handle):
                return False
            end = End(start.transfer, start.copy.nbytes)
        except TransferFailed as error:
            end = End(start.transfer, 0, _failure(start, str(error)))
        self._release(agent, copy.handle)
        if not copy.told:
            self._tell(end)
        self._unused(start.copy)
        return True

    def _end_reading(self, why: str) -> None:
        if self._reading is None:
            return
        reads = [copy for copy in self._open if _reads(copy)]
        self._open = [copy for copy in self._open if not _reads(copy)]
        for copy in reads:
            self._release(self._reading, copy.handle)
            copy.handle = None
            self._fail(copy.start, why)
        for known in self._peers.values():
            for copy_of in [each for each in known.copies if each.operation == _READ]:
                self._drop(copy_of)
        for name in self._read_names:
            self._forget(self._reading, name)
        self._read_names.clear()
        try:
            self._reading.close()
        except TransferFailed as error:
            log.warning("%s", error)
        self._reading = None

    def _leave_if_quiet(self, peer: PeerId) -> None:
        known = self._peers[peer]
        if any(copy.start.copy.peer == peer for copy in self._open):
            return
        for copy in list(known.copies):
            self._drop(copy)
        del self._peers[peer]
        self._names[known.name] -= 1
        if not self._names[known.name]:
            del self._names[known.name]
            self._forget(self._writing, known.name)
            if self._reading is not None and known.name in self._read_names:
                self._forget(self._reading, known.name)
                self._read_names.discard(known.name)
        if known.left is not None:
            known.left.set_result(None)

    def _fail(self, start: Start, why: str) -> None:
        self._fail_end(start, why)
        self._unused(start.copy)

    def _fail_end(self, start: Start, why: str) -> None:
        self._tell(End(start.transfer, 0, _failure(start, why)))

    def _unused(self, copy: LayerCopy) -> None:
        copy.users -= 1
        if not copy.users:
            self._drop(copy)

    def _drop(self, copy: LayerCopy) -> None:
        if copy.prepared is None:
            return
        prepared, copy.prepared = copy.prepared, None
        self._peers[copy.peer].copies.remove(copy)
        agent = self._agent_of(copy.operation)
        try:
            agent.drop(prepared)
        except TransferFailed as error:
            log.warning("%s", error)

    def _release(self, agent: Agent, handle: Any) -> None:
        try:
            agent.release(handle)
        except TransferFailed as error:
            log.warning("%s", error)

    def _forget(self, agent: Agent, name: str) -> None:
        try:
            agent.leave(name)
        except TransferFailed as error:
            # A peer that has died may be gone from the agent already.
            log.debug("%s", error)


def _join(agent: Agent, name: str, metadata: bytes, in_use: Container[str]) -> None:
    joined = agent.join(metadata)
    if joined != name:
        if joined not in in_use:
            agent.leave(joined)
        raise TransferFailed(f"the peer says that it is {name}, and its metadata {joined}")


def _reads(copy: _Open) -> bool:
    return copy.start.copy.operation == _READ


def _failure(start: Start, why: str) -> str:
    verb = "read" if start.copy.operation == _READ else "written"
    return f"layer {start.layer} was not {verb}: {why}"
