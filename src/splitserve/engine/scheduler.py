"""Decides what each step computes. Knows sequences and block numbers, no tensors and no roles.

The rules, in the order in which a step applies them:

1. Running sequences with one token to compute (decodes) come first, so that no flood of prompts
   can stall a stream. While a prompt waits they take at most ``max_num_batched_tokens`` less one
   block, so that no number of streams can stall a prompt; if that leaves some out, the ones that
   ran longest ago go first.
2. Prompts follow in the order of priority, then arrival, in chunks that fill what is left. A chunk
   after which the prompt goes on ends at a block border.
3. Decodes left out by rule 1 take what the prompts did not use.

A prompt is admitted with all its blocks at once, and only if one block is left for each sequence
that already grows: so only decodes ever lack a block. A decode that lacks one preempts the last
sequence after it (by priority, then arrival) that this step does not compute; that one later
computes its KV again and keeps its tokens. With none after it, the decode waits with its KV. A
pushing sequence is never preempted: it needs no further block, and a connector may still read its
blocks. Nobody overtakes the first waiting sequence, so each finite set of requests ends: the first
in order is never set back by another.

A step may be scheduled while the device still works on the one before. What that one computes
cannot be preempted, so nothing is scheduled then unless each sequence that lacks a block finds one
(``may_run_ahead``): short of memory, the next step waits for the end of the one before.
"""

from bisect import bisect_left, insort
from heapq import merge
from operator import attrgetter
from typing import Final, NamedTuple

from splitserve.clock import Clock, monotonic
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.kv.blocks import BlockPool
from splitserve.engine.kv.prefix import BlockHasher
from splitserve.engine.sequence import Seq
from splitserve.errors import BugError, ConfigError

_ORDER: Final = attrgetter("order")


class Chunk(NamedTuple):
    """Compute the tokens of ``seq`` from number ``start`` to ``end - 1``."""

    seq: Seq
    start: int
    end: int


class Scheduler:
    """Queues of one engine. Holds blocks of ``pool`` for the sequences that run."""

    def __init__(
        self,
        config: SchedulerConfig,
        pool: BlockPool,
        block_size: int,
        clock: Clock = monotonic,
    ) -> None:
        if config.max_num_batched_tokens <= block_size:
            raise ConfigError(
                f"max_num_batched_tokens is {config.max_num_batched_tokens}; it must be larger "
                f"than the block size {block_size}"
            )
        if config.max_num_seqs < 1:
            raise ConfigError(f"max_num_seqs is {config.max_num_seqs}; it must be at least 1")
        self._pool = pool
        self._block_size = block_size
        self._budget = config.max_num_batched_tokens
        self._max_num_seqs = config.max_num_seqs
        self._hasher = BlockHasher(block_size) if config.enable_prefix_caching else None
        self._clock = clock
        self._step = 0
        self.running: list[Seq] = []
        self.waiting: list[Seq] = []
        self.preemptions = 0
        self.prefix_hit_tokens = 0
        self.prefix_query_tokens = 0

    # Coming and going

    def submit(self, seq: Seq) -> None:
        """Queues a sequence without KV."""
        insort(self.waiting, seq, key=_ORDER)

    def join(self, seq: Seq) -> None:
        """Runs a sequence that has its blocks and KV already (its grant held the place)."""
        seq.is_running = True
        if seq.scheduled_at is None:
            seq.scheduled_at = self._clock()
        insort(self.running, seq, key=_ORDER)

    def leave(self, seq: Seq) -> None:
        """Takes a sequence out; its blocks stay held and are the caller's."""
        queue = self.running if seq.is_running else self.waiting
        at = bisect_left(queue, seq.order, key=_ORDER)
        if at == len(queue) or queue[at] is not seq:
            raise BugError(f"sequence {seq.request_id} is in no queue")
        del queue[at]
        seq.is_running = False

    # Prefix cache

    @property
    def caches(self) -> bool:
        """Whether blocks are named by what is in them, so that they can be shared."""
        return self._hasher is not None

    def cached_prefix(self, seq: Seq, count: int) -> list[int]:
        """Cached blocks for a start of the sequence, of its first ``count`` blocks at most."""
        if self._hasher is None:
            return []
        self._hasher.extend(seq.digests, seq.root, seq.tokens, count)
        return self._pool.find(seq.digests[:count])

    def register(self, seq: Seq, positions: int) -> None:
        """The first ``positions`` have their KV: full blocks of it may be shared from now on."""
        full = positions // self._block_size
        if self._hasher is None or full <= seq.num_registered:
            return
        self._hasher.extend(seq.digests, seq.root, seq.tokens, full)
        for number in range(seq.num_registered, full):
            self._pool.register(seq.blocks[number], seq.digests[number])
        seq.num_registered = full

    def count_prefix(self, seq: Seq, cached_blocks: int) -> int:
        """Counts one look-up for the statistics; returns the prompt tokens that were found."""
        cached = min(cached_blocks * self._block_size, seq.prompt_len)
        self.prefix_hit_tokens += cached
        self.prefix_query_tokens += seq.prompt_len
        return cached

    # Room

    def blocks_for(self, positions: int) -> int:
        return -(-positions // self._block_size)

    def has_place_for_grant(self, count: int, shared: list[int]) -> bool:
        """Whether ``count`` blocks beside ``shared`` can be granted without harm to others.

        What waits here came earlier and is to find its room; what runs is to find its next block.
        """
        if self._open() + len(self.waiting) >= self._max_num_seqs:
            return False
        queued = sum(self.blocks_for(len(seq.tokens)) for seq in self.waiting)
        return self._pool.room(shared) >= count + self._spare() + queued

    def has_room_to_fetch(self, count: int, shared: list[int]) -> bool:
        """Whether ``count`` blocks beside ``shared`` can be held for a while: what runs, and who
        waits first, is to find its blocks meanwhile."""
        first = self.blocks_for(len(self.waiting[0].tokens)) if self.waiting else 0
        return self._pool.room(shared) >= count + self._spare() + first

    def has_work(self) -> bool:
        """Whether ``schedule`` would return anything."""
        if any(seq.remaining > 1 or self._has_slot(seq) for seq in self.running):
            return True
        if self.running and self._pool.available:
            return True
        # Everything that runs lacks a block: the first can go on at the cost of another.
        if sum(not seq.push for seq in self.running) > 1:
            return True
        return bool(self.waiting) and self._admission(self.waiting[0]) is not None

    def waiting_tokens(self) -> int:
        """Tokens to compute before the present prompts have their next token."""
        prompts = (seq.remaining for seq in self.running if seq.remaining > 1)
        return sum(prompts) + sum(seq.remaining for seq in self.waiting)

    # One step

    def may_run_ahead(self) -> bool:
        """Whether the next step would be scheduled without preempting anyone."""
        available = self._pool.available
        if available >= len(self.running):
            return True
        return available >= sum(not self._has_slot(seq) for seq in self.running)

    def schedule(self) -> list[Chunk]:
        """The next step's work, at most ``max_num_batched_tokens`` tokens.

        Changes who holds blocks but nothing that is computed: if the step fails, the same work is
        scheduled again.
        """
        self._step += 1
        decodes, prompts = self._by_need()
        turn, rest = self._decode_turns(decodes, bool(prompts))
        chunks = [self._decode(seq) for seq in turn if seq.is_running and self._grow(seq)]
        budget = self._schedule_prompts(chunks, prompts, self._budget - len(chunks))
        for seq in rest:
            # One that was preempted above may be back already, as a prompt of this very step.
            is_new = seq.is_running and seq.last_step != self._step
            if budget > 0 and is_new and self._grow(seq):
                chunks.append(self._decode(seq))
                budget -= 1
        return chunks

    def _decode(self, seq: Seq) -> Chunk:
        seq.last_step = self._step
        return Chunk(seq, seq.num_computed, seq.num_computed + 1)

    def _by_need(self) -> tuple[list[Seq], list[Seq]]:
        """What runs, in queue order: decodes, and prompts of which more is to compute."""
        decodes: list[Seq] = []
        prompts: list[Seq] = []
        for seq in self.running:
            remaining = len(seq.tokens) - seq.num_computed
            if remaining == 1:
                decodes.append(seq)
            elif remaining > 1:
                prompts.append(seq)
        return decodes, prompts

    def _decode_turns(self, decodes: list[Seq], has_prompts: bool) -> tuple[list[Seq], list[Seq]]:
        """Decodes of this step in queue order, and those that must leave room to prompts."""
        limit = self._budget
        if self.waiting or has_prompts:
            limit -= self._block_size
        if len(decodes) <= limit:
            return decodes, []
        decodes.sort(key=lambda seq: (seq.order[0], seq.last_step, seq.order))
        return sorted(decodes[:limit], key=_ORDER), decodes[limit:]

    def _schedule_prompts(self, chunks: list[Chunk], prompts: list[Seq], budget: int) -> int:
        """Adds chunks of those ``prompts`` and of waiting ones; returns what is left."""
        started = [seq for seq in prompts if seq.is_running]
        may_admit = True
        for seq in merge(started, list(self.waiting), key=_ORDER):
            if not seq.is_running:
                may_admit = may_admit and self._admit(seq, budget)
                if not may_admit:
                    continue
            num_tokens = self._prompt_part(seq.num_computed, len(seq.tokens), budget)
            if num_tokens == 0:
                break
            seq.last_step = self._step
            chunks.append(Chunk(seq, seq.num_computed, seq.num_computed + num_tokens))
            budget -= num_tokens
        return budget

    def _prompt_part(self, start: int, total: int, budget: int) -> int:
        """Tokens of the next chunk: all that is left, or up to a block border."""
        end = min(total, start + budget)
        if end < total:
            end -= end % self._block_size
        return max(0, end - start)

    def _admit(self, seq: Seq, budget: int) -> bool:
        plan = self._admission(seq)
        if plan is None:
            return False
        shared, count = plan
        start = len(shared) * self._block_size
        if self._prompt_part(start, len(seq.tokens), budget) == 0:
            return False
        blocks = self._pool.allocate(count, shared)
        if blocks is None:
            return False
        self.leave(seq)
        self.join(seq)
        seq.blocks = blocks
        seq.num_computed = start
        seq.num_registered = len(shared)
        if not seq.was_admitted:
            seq.was_admitted = True
            seq.cached_tokens = self.count_prefix(seq, len(shared))
        return True

    def _admission(self, seq: Seq) -> tuple[list[int], int] | None:
        """Cached blocks and number of fresh ones with which ``seq`` can start, or None."""
        if self._open() >= self._max_num_seqs:
            return None
        # The last token is always computed: without it there are no logits to sample from.
        shared = self.cached_prefix(seq, (len(seq.tokens) - 1) // self._block_size)
        count = self.blocks_for(len(seq.tokens)) - len(shared)
        if self._pool.room(shared) < count + self._spare():
            return None
        return shared, count

    def _open(self) -> int:
        return len(self.running) + self._pool.open_grants

    def _spare(self) -> int:
        """Blocks to leave alone: one for each sequence that grows, or will when its KV is here."""
        return sum(not seq.push for seq in self.running) + self._pool.open_grants

    def _has_slot(self, seq: Seq) -> bool:
        return seq.num_computed < len(seq.blocks) * self._block_size

    def _grow(self, seq: Seq) -> bool:
        """Sees to it that the next token has a slot, if need be at the cost of a later sequence."""
        if self._has_slot(seq):
            return True
        while (fresh := self._pool.allocate(1)) is None:
            victim = self._last_after(seq)
            if victim is None:
                return False
            self._preempt(victim)
        seq.blocks += fresh
        return True

    def _last_after(self, seq: Seq) -> Seq | None:
        """The last sequence after ``seq`` that may be preempted: not if this step computes it."""
        for victim in reversed(self.running):
            if victim is seq:
                return None
            if not victim.push and victim.last_step != self._step:
                return victim
        return None

    def _preempt(self, victim: Seq) -> None:
        if victim.open_launches:
            raise BugError(f"sequence {victim.request_id} is preempted while it is computed")
        self.leave(victim)
        self._pool.free(victim.blocks)
        victim.forget_kv()
        self.submit(victim)
        self.preemptions += 1
