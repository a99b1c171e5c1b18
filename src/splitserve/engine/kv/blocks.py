"""The ledger of KV blocks: each is in exactly one state, and the states add up to all blocks.

    free         nobody's, content worthless
    cached       nobody's, content known by name: can be shared or evicted
    held         used by one or more sequences of this engine
    granted      promised to one handoff; a remote writer may write into it at any moment
    exported     kept as the source of a transfer, and not held
    quarantined  its grant is void but its writer may still be alive: never handed out

Granted and quarantined blocks belong to one grant alone. The others may be shared (one prefix in
many sequences and exports); a shared block has the first state that fits in the order *held,
exported, cached*. The cached prefix that a grant builds on is held, in quarantine too: nobody
writes into it, but the grant's writer may be reading it.

Operations that come from other processes (activate, cancel, fence, writer_gone) may be late,
repeated or unknown: they then change nothing and say so in what they return.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.engine.kv.prefix import PrefixIndex
from splitserve.engine.kv.runs import fewest_runs
from splitserve.errors import BugError
from splitserve.ids import HandoffId, WorkerId
from splitserve.protocol.telemetry import KVCounts

_FREE: Final = 0
_CACHED: Final = 1
_HELD: Final = 2
_GRANTED: Final = 3
_EXPORTED: Final = 4
_QUARANTINED: Final = 5

_CHOICE: Final = 2
"""Among so many times the blocks that are wanted it is chosen. What is passed over is still the
oldest for the next; the wider the choice, the younger the content that is lost for it."""


@dataclass(slots=True)
class _Grant:
    """``writer`` may write ``blocks`` and read ``shared``. ``fenced``: it has said that it will
    not any more."""

    epoch: int
    writer: WorkerId
    blocks: list[int]
    shared: tuple[int, ...]
    fenced: bool = False


class BlockPool:
    """Hands out the block numbers ``0 .. num_blocks - 1``. Every operation is O(1) per block, but
    for ``n`` at once, which are sorted."""

    def __init__(self, num_blocks: int) -> None:
        self._free = list(range(num_blocks - 1, -1, -1))
        self._index = PrefixIndex()
        self._state = bytearray(num_blocks)
        self._counts = [num_blocks, 0, 0, 0, 0, 0]
        self._holders = [0] * num_blocks
        self._exporters = [0] * num_blocks
        self._grants: dict[HandoffId, _Grant] = {}
        self._quarantine: dict[tuple[HandoffId, int], _Grant] = {}
        self._epoch = 0

    @property
    def num_blocks(self) -> int:
        return len(self._state)

    @property
    def available(self) -> int:
        """Blocks that could be handed out now: free and cached."""
        return self._counts[_FREE] + self._counts[_CACHED]

    @property
    def open_grants(self) -> int:
        """Handoffs that hold granted blocks (or none, when all of the prompt was cached)."""
        return len(self._grants)

    def counts(self) -> KVCounts:
        return KVCounts(
            free=self._counts[_FREE],
            cached=self._counts[_CACHED],
            held=self._counts[_HELD],
            granted=self._counts[_GRANTED],
            exported=self._counts[_EXPORTED],
            quarantined=self._counts[_QUARANTINED],
        )

    # Prefix cache

    def find(self, digests: Sequence[bytes]) -> list[int]:
        """Blocks that hold the longest known start of ``digests``; takes no reference."""
        return self._index.find(digests)

    def register(self, block: int, digest: bytes) -> bool:
        """Names a held block whose KV is complete. False when that name has a block already."""
        if not self._holders[block]:
            raise BugError(f"block {block} is registered but not held")
        return self._index.add(block, digest)

    def room(self, shared: Sequence[int] = ()) -> int:
        """How many blocks could be handed out beside sharing ``shared``."""
        return self.available - sum(self._state[block] == _CACHED for block in shared)

    # Sequences

    def allocate(self, count: int, shared: Sequence[int] = ()) -> list[int] | None:
        """Holds the ``shared`` blocks that ``find`` gave and ``count`` fresh ones, in that order.

        Evicts cached blocks where needed. All or nothing: None when there is no room.
        """
        if self.room(shared) < count:
            return None
        self._share(shared)
        fresh = self._take(count, _HELD)
        for block in fresh:
            self._holders[block] = 1
        return [*shared, *fresh]

    def free(self, blocks: Sequence[int]) -> None:
        """One holder gives up ``blocks``. Named ones become cached, the last block oldest."""
        for block in reversed(blocks):
            if not self._holders[block]:
                raise BugError(f"block {block} is freed but not held")
            self._holders[block] -= 1
            self._settle(block)

    def export(self, blocks: Sequence[int]) -> None:
        """One holder turns exporter: ``blocks`` keep their content until ``release``."""
        for block in blocks:
            if not self._holders[block]:
                raise BugError(f"block {block} is exported but not held")
            self._holders[block] -= 1
            self._exporters[block] += 1
            self._settle(block)

    def release(self, blocks: Sequence[int]) -> None:
        """One exporter is done with ``blocks``."""
        for block in reversed(blocks):
            if not self._exporters[block]:
                raise BugError(f"block {block} is released but not exported")
            self._exporters[block] -= 1
            self._settle(block)

    def offer(self, limit: int) -> list[tuple[bytes, int]]:
        """Names and numbers of at most ``limit`` named blocks that were not offered before, those
        named first come first. They keep their content until ``release``."""
        offered = self._index.take_news(limit)
        for _, block in offered:
            if self._state[block] == _CACHED:
                self._index.revive(block)
            self._exporters[block] += 1
            self._settle(block)
        return offered

    # Grants

    def grant(
        self, handoff: HandoffId, writer: WorkerId, count: int, shared: Sequence[int] = ()
    ) -> tuple[int, list[int]] | None:
        """Holds ``shared`` and grants ``count`` fresh blocks to ``writer``, until the grant ends.

        Returns the grant's epoch, never used before in this pool, and the fresh blocks; None when
        there is no room or ``handoff`` has a grant. ``writer`` must name one life of a process: a
        restarted one under an old name would be taken for dead with it.
        """
        if handoff in self._grants or self.room(shared) < count:
            return None
        self._share(shared)
        self._epoch += 1
        blocks = self._take(count, _GRANTED)
        self._grants[handoff] = _Grant(self._epoch, writer, blocks, tuple(shared))
        return self._epoch, list(blocks)

    def activate(self, handoff: HandoffId, epoch: int) -> list[int] | None:
        """The writer has written all: the shared and the granted blocks, in this order, are now
        held by one sequence.

        None when there is no such grant, it has another epoch, or its writer has given it up.
        """
        grant = self._grants.get(handoff)
        if grant is None or grant.epoch != epoch or grant.fenced:
            return None
        del self._grants[handoff]
        for block in grant.blocks:
            self._move(block, _HELD)
            self._holders[block] = 1
        return [*grant.shared, *grant.blocks]

    def cancel(self, handoff: HandoffId) -> int | None:
        """Voids a grant and returns its epoch, None when there is none.

        Its blocks are quarantined and the shared ones stay held, or all are given back if the
        writer's fence came before.
        """
        grant = self._grants.pop(handoff, None)
        if grant is None:
            return None
        if grant.fenced:
            self._end(grant)
        else:
            for block in grant.blocks:
                self._move(block, _QUARANTINED)
            self._quarantine[handoff, grant.epoch] = grant
        return grant.epoch

    def fence(self, handoff: HandoffId, epoch: int) -> bool:
        """The writer will not touch that grant any more: ends its quarantine.

        A fence that comes before the cancel is remembered. False when there is no such grant.
        """
        quarantined = self._quarantine.pop((handoff, epoch), None)
        if quarantined is not None:
            self._end(quarantined)
            return True
        grant = self._grants.get(handoff)
        if grant is None or grant.epoch != epoch:
            return False
        grant.fenced = True
        return True

    def writer_gone(self, writer: WorkerId) -> list[HandoffId]:
        """The writer's process is dead: frees all that was granted to it or quarantined for it.

        Returns the handoffs whose grants this ended.
        """
        ended = [handoff for handoff, grant in self._grants.items() if grant.writer == writer]
        over = [key for key, grant in self._quarantine.items() if grant.writer == writer]
        for handoff in ended:
            self._end(self._grants.pop(handoff))
        for key in over:
            self._end(self._quarantine.pop(key))
        return ended

    def _end(self, grant: _Grant) -> None:
        """Nobody writes into the grant or reads what it builds on."""
        for block in grant.blocks:
            self._move(block, _FREE)
            self._free.append(block)
        self.free(grant.shared)

    # State

    def _move(self, block: int, state: int) -> None:
        self._counts[self._state[block]] -= 1
        self._counts[state] += 1
        self._state[block] = state

    def _take(self, count: int, state: int) -> list[int]:
        """``count`` blocks nobody owns, ascending; the caller has checked ``room``."""
        blocks = self._pick(count)
        for block in blocks:
            self._move(block, state)
        return blocks

    def _pick(self, count: int) -> list[int]:
        """Free ones before cached ones, and of these the oldest; but of twice as many as are wanted
        those that lie side by side."""
        if count < 2:
            return [self._free.pop() if self._free else self._index.evict() for _ in range(count)]
        few = self._free[-_CHOICE * count :]
        old = self._index.oldest(_CHOICE * count - len(few)) if len(few) < count else []
        picked = fewest_runs([*few, *old], count)
        gone = set(picked)
        self._free[len(self._free) - len(few) :] = [block for block in few if block not in gone]
        for block in gone.intersection(old):
            self._index.forget(block)
        return picked

    def _share(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if self._state[block] == _CACHED:
                self._index.revive(block)
            self._holders[block] += 1
            self._settle(block)

    def _settle(self, block: int) -> None:
        """Sets the state of a block that is neither granted nor quarantined from its owners."""
        if self._holders[block]:
            state = _HELD
        elif self._exporters[block]:
            state = _EXPORTED
        elif block in self._index:
            state = _CACHED
            self._index.retire(block)
        else:
            state = _FREE
            self._free.append(block)
        if state != self._state[block]:
            self._move(block, state)
