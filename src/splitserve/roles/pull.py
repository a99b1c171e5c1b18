"""Brings the start of a prompt from a decode worker's pool, where it lies, instead of computing it.

The grant says which of decode's blocks hold it, and keeps them as they are: so nothing is asked of
the decode worker. What is brought counts only once all layers are here and nobody has given it up.
Where reading has turned out to cost more than computing, nothing is read (see ``pull_cost``).

Driven by the engine's thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.clock import Clock
from splitserve.engine.api import Engine, Fetch
from splitserve.ids import WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.handoff import GrantTarget
from splitserve.roles.pull_cost import PullCost
from splitserve.transfer.base import LayerReader, PeerId, TransferEvent, TransferId
from splitserve.transfer.plan import spans
from splitserve.transfer.sharded import Leg, ShardedConnector

TURN_S: Final = 0.005
"""For about so long reads are started in one turn. Where a read has ended when it has been started,
the steps of others must not wait for all of them."""


@dataclass(slots=True, eq=False)
class Pull:
    """One fetch that is being filled with ``tokens``, for each of ``layers`` one read by each of
    ``readers``, since ``opened``.

    ``started`` of the reads were begun and ``under_way`` of them have not ended, of which one began
    or ended last at ``moved``. ``error`` is that of the first that failed. ``unwanted``: what it
    brings will not be used; ``stalls``: because it took too long.
    """

    request: GenerateRequest
    worker: WorkerId
    peer: PeerId
    fetch: Fetch
    readers: tuple[LayerReader, ...]
    layers: int
    tokens: int
    opened: float
    moved: float
    started: int = 0
    under_way: int = 0
    nbytes: int = 0
    error: str = ""
    unwanted: bool = False
    stalls: bool = False

    @property
    def wants_more(self) -> bool:
        """Whether a further read is to be started."""
        reads = self.layers * len(self.readers)
        return self.started < reads and not self.error and not self.unwanted

    @property
    def is_over(self) -> bool:
        """Whether no read is under way and none will start."""
        return not self.under_way and not self.wants_more


class Puller:
    """The pulls of one worker. ``tokens`` and ``nbytes`` are what was brought and used so far;
    ``cost`` is what it learns."""

    def __init__(self, engine: Engine, connector: ShardedConnector, clock: Clock) -> None:
        self._engine = engine
        self._layout = engine.describe().layout
        self._connector = connector
        self._clock = clock
        self._pulls: list[Pull] = []
        self._by_transfer: dict[TransferId, Pull] = {}
        self.cost = PullCost()
        self.tokens = 0
        self.nbytes = 0

    def open(self, request: GenerateRequest, peer: PeerId, target: GrantTarget) -> Pull | None:
        """Begins to read what ``target`` says that ``peer``, which is connected, has of the prompt
        and this engine lacks. None when that is nothing, there is no room for it, computing it is
        cheaper, or reads from that peer were left behind and have not ended: more would hold blocks
        for nothing.

        May raise CallerError where ``Engine.add`` would.
        """
        if any(pull.stalls and pull.peer == peer for pull in self._pulls):
            return None
        legs = self._connector.legs(peer)
        reach = len(target.cached_blocks) * legs[0].theirs.block_size
        fetch = self._engine.fetch(request, push=True, tokens=reach) if reach else None
        if fetch is None:
            return None
        if self._is_dear(target.worker, fetch):
            self._engine.drop(fetch)
            return None
        return self._begin(request, peer, target, fetch)

    def _is_dear(self, worker: WorkerId, fetch: Fetch) -> bool:
        tokens = len(fetch.blocks) * self._layout.block_size
        nbytes = tokens * self._layout.token_bytes
        ahead = self._engine.stats().waiting_tokens
        return self.cost.skips(worker, nbytes, tokens, ahead, self._clock())

    def _begin(
        self, request: GenerateRequest, peer: PeerId, target: GrantTarget, fetch: Fetch
    ) -> Pull:
        legs = self._connector.legs(peer)
        size = self._layout.block_size
        start = fetch.first * size
        tokens = range(start, start + len(fetch.blocks) * size)
        pull = Pull(
            request=request,
            worker=target.worker,
            peer=peer,
            fetch=fetch,
            readers=tuple(_reader(leg, tokens, target, fetch) for leg in legs),
            layers=self._layout.num_layers,
            tokens=len(tokens),
            opened=self._clock(),
            moved=self._clock(),
        )
        self._pulls.append(pull)
        self.advance()
        return pull

    def take(self, events: Sequence[TransferEvent]) -> None:
        """Takes in the ends of reads; those of other transfers are none of its business."""
        for event in events:
            pull = self._by_transfer.pop(event.transfer, None)
            if pull is None:
                continue
            pull.under_way -= 1
            pull.moved = self._clock()
            pull.nbytes += event.nbytes
            if event.state == "failed":
                pull.error = pull.error or event.error

    def advance(self) -> None:
        """Starts reads for a turn, and gives back what was held for those that nobody wants."""
        for pull in [pull for pull in self._pulls if pull.unwanted and pull.is_over]:
            self._drop(pull)
        until = self._clock() + TURN_S
        for pull in self._pulls:
            while pull.wants_more:
                self._read(pull)
                if pull.moved >= until:
                    return

    def finish(self, pull: Pull) -> None:
        """For one that is over: what it brought is in the prefix cache now, if all has come."""
        if pull.error:
            self._drop(pull)
            return
        self._pulls.remove(pull)
        self._engine.adopt(pull.fetch, len(pull.fetch.blocks))
        self.cost.pulled(pull.worker, pull.nbytes, pull.moved - pull.opened, pull.moved)
        self.tokens += pull.tokens
        self.nbytes += pull.nbytes

    def give_up(self, pull: Pull) -> None:
        """What it brings will not be used. Its blocks are held until no read is under way."""
        pull.unwanted = True
        if pull.is_over and pull in self._pulls:
            self._drop(pull)

    def leave_behind(self, pull: Pull) -> None:
        """Nothing of it moves: it is given up, and no other is opened there until it has ended."""
        pull.stalls = True
        self.give_up(pull)

    def _read(self, pull: Pull) -> None:
        layer, reader = divmod(pull.started, len(pull.readers))
        transfer = pull.readers[reader].read(layer)
        self._by_transfer[transfer] = pull
        pull.started += 1
        pull.under_way += 1
        pull.moved = self._clock()

    def _drop(self, pull: Pull) -> None:
        self._pulls.remove(pull)
        self._engine.drop(pull.fetch)


def _reader(leg: Leg, tokens: range, target: GrantTarget, fetch: Fetch) -> LayerReader:
    ours, theirs = leg.ours, leg.theirs
    return leg.reader(
        spans(theirs, ours, tokens, target.cached_blocks, fetch.blocks, 0, fetch.first)
    )
