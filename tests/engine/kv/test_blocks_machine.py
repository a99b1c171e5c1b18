"""The ledger of KV blocks against a model that is too simple to be wrong."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from splitserve.engine.kv.blocks import BlockPool
from splitserve.ids import HandoffId, WorkerId
from splitserve.protocol.telemetry import KVCounts

WRITERS = [WorkerId("p0"), WorkerId("p1")]
HANDOFFS = [HandoffId(f"h{number}") for number in range(3)]
NAMES = [bytes([number]) for number in range(6)]
PICK = st.integers(0, 1 << 16)


@dataclass
class Granted:
    writer: WorkerId
    epoch: int
    blocks: list[int]
    shared: list[int]
    fenced: bool = False


@dataclass
class Model:
    """Who owns what, in plain lists."""

    size: int
    held: list[list[int]] = field(default_factory=list)
    exported: list[list[int]] = field(default_factory=list)
    granted: dict[HandoffId, Granted] = field(default_factory=dict)
    quarantined: list[tuple[HandoffId, Granted]] = field(default_factory=list)
    named: dict[bytes, int] = field(default_factory=dict)
    unused: list[int] = field(default_factory=list)
    news: list[bytes] = field(default_factory=list)

    def state(self, block: int) -> str:
        if any(block in grant.blocks for grant in self.granted.values()):
            return "granted"
        if any(block in grant.blocks for _, grant in self.quarantined):
            return "quarantined"
        shared = self.shared()
        if any(block in blocks for blocks in [*self.held, *shared]):
            return "held"
        if any(block in blocks for blocks in self.exported):
            return "exported"
        return "cached" if block in self.named.values() else "free"

    def shared(self) -> list[list[int]]:
        """What grants build on: the writer may read it until it can write no more."""
        grants = [*self.granted.values(), *(grant for _, grant in self.quarantined)]
        return [grant.shared for grant in grants]

    def owners(self, block: int) -> int:
        """Owners that exclude each other, and all sharers as one."""
        alone = [grant.blocks for grant in self.granted.values()]
        alone += [grant.blocks for _, grant in self.quarantined]
        together = [*self.held, *self.exported, *self.shared()]
        return sum(blocks.count(block) for blocks in alone) + any(
            block in blocks for blocks in together
        )

    def counts(self) -> dict[str, int]:
        states = [self.state(block) for block in range(self.size)]
        return {state: states.count(state) for state in KVCounts.__struct_fields__}

    def settle(self, blocks: list[int]) -> None:
        """Blocks lost an owner: named ones that nobody uses queue up for eviction."""
        for block in reversed(blocks):
            if self.state(block) == "cached" and block not in self.unused:
                self.unused.append(block)

    def took(self, fresh: list[int], shared: list[int]) -> None:
        """Checks a hand-out and forgets the names of what was evicted."""
        for block in shared:
            if block in self.unused:
                self.unused.remove(block)
        free = [block for block in range(self.size) if self.state(block) == "free"]
        oldest = self.unused[: max(0, len(fresh) - len(free))]
        assert len(set(fresh)) == len(fresh)
        assert set(fresh) <= {*free, *oldest}
        assert set(oldest) <= set(fresh)
        self.named = {name: block for name, block in self.named.items() if block not in oldest}
        self.unused = [block for block in self.unused if block not in oldest]
        self.news = [name for name in self.news if name in self.named]


class Ledger(RuleBasedStateMachine):
    @initialize(size=st.integers(1, 10))
    def start(self, size: int) -> None:
        self.pool = BlockPool(size)
        self.model = Model(size)

    def room(self, shared: list[int]) -> int:
        states = [self.model.state(block) for block in range(self.model.size)]
        sharable = sum(self.model.state(block) == "cached" for block in shared)
        return states.count("free") + states.count("cached") - sharable

    def prefix(self, pick: int) -> list[int]:
        """The pool's blocks for a run of names, checked against the model."""
        names = NAMES[pick % len(NAMES) :]
        known: list[int] = []
        for name in names:
            if name not in self.model.named:
                break
            known.append(self.model.named[name])
        assert self.pool.find(names) == known
        return known

    @rule(count=st.integers(0, 4), pick=PICK)
    def allocate(self, count: int, pick: int) -> None:
        shared = self.prefix(pick)
        fits = self.room(shared) >= count
        blocks = self.pool.allocate(count, shared)
        assert (blocks is not None) == fits
        if blocks is not None:
            assert blocks[: len(shared)] == shared
            self.model.took(blocks[len(shared) :], shared)
            self.model.held.append(blocks)

    @precondition(lambda self: any(self.model.held))
    @rule(pick=PICK, name=st.sampled_from(NAMES))
    def register(self, pick: int, name: bytes) -> None:
        blocks = [block for held in self.model.held for block in held]
        block = blocks[pick % len(blocks)]
        new = name not in self.model.named and block not in self.model.named.values()
        assert self.pool.register(block, name) == new
        if new:
            self.model.named[name] = block
            self.model.news.append(name)

    @precondition(lambda self: self.model.held)
    @rule(pick=PICK)
    def free(self, pick: int) -> None:
        blocks = self.model.held.pop(pick % len(self.model.held))
        self.pool.free(blocks)
        self.model.settle(blocks)

    @precondition(lambda self: self.model.held)
    @rule(pick=PICK)
    def export(self, pick: int) -> None:
        blocks = self.model.held.pop(pick % len(self.model.held))
        self.pool.export(blocks)
        self.model.exported.append(blocks)

    @precondition(lambda self: self.model.exported)
    @rule(pick=PICK)
    def release(self, pick: int) -> None:
        blocks = self.model.exported.pop(pick % len(self.model.exported))
        self.pool.release(blocks)
        self.model.settle(blocks)

    @rule(
        handoff=st.sampled_from(HANDOFFS),
        writer=st.sampled_from(WRITERS),
        count=st.integers(0, 4),
        pick=PICK,
    )
    def grant(self, handoff: HandoffId, writer: WorkerId, count: int, pick: int) -> None:
        shared = self.prefix(pick)
        fits = handoff not in self.model.granted and self.room(shared) >= count
        grant = self.pool.grant(handoff, writer, count, shared)
        assert (grant is not None) == fits
        if grant is not None:
            epoch, blocks = grant
            self.model.took(blocks, shared)
            self.model.granted[handoff] = Granted(writer, epoch, blocks, shared)

    def epoch_of(self, handoff: HandoffId, off: int) -> int:
        """A live, voided or made-up epoch."""
        epochs = [grant.epoch for h, grant in self.model.quarantined if h == handoff]
        if handoff in self.model.granted:
            epochs.append(self.model.granted[handoff].epoch)
        return [*epochs, 10**6][off % (len(epochs) + 1)]

    @rule(handoff=st.sampled_from(HANDOFFS), off=st.integers(0, 3))
    def activate(self, handoff: HandoffId, off: int) -> None:
        epoch = self.epoch_of(handoff, off)
        grant = self.model.granted.get(handoff)
        valid = grant is not None and grant.epoch == epoch and not grant.fenced
        blocks = self.pool.activate(handoff, epoch)
        assert (blocks is not None) == valid
        if grant is not None and blocks is not None:
            assert blocks == [*grant.shared, *grant.blocks]
            del self.model.granted[handoff]
            self.model.held.append(blocks)

    @rule(handoff=st.sampled_from(HANDOFFS))
    def cancel(self, handoff: HandoffId) -> None:
        grant = self.model.granted.pop(handoff, None)
        assert self.pool.cancel(handoff) == (None if grant is None else grant.epoch)
        if grant is None:
            return
        if grant.fenced:
            self.model.settle(grant.shared)
        else:
            self.model.quarantined.append((handoff, grant))

    @rule(handoff=st.sampled_from(HANDOFFS), off=st.integers(0, 3))
    def fence(self, handoff: HandoffId, off: int) -> None:
        epoch = self.epoch_of(handoff, off)
        mine = [q for q in self.model.quarantined if q[0] == handoff and q[1].epoch == epoch]
        grant = self.model.granted.get(handoff)
        live = grant is not None and grant.epoch == epoch
        assert self.pool.fence(handoff, epoch) == bool(mine or live)
        if grant is not None and live:
            grant.fenced = True
        self.end_quarantine(mine)

    @rule(writer=st.sampled_from(WRITERS))
    def writer_gone(self, writer: WorkerId) -> None:
        ended = {h: g for h, g in self.model.granted.items() if g.writer == writer}
        assert self.pool.writer_gone(writer) == list(ended)
        for handoff, grant in ended.items():
            del self.model.granted[handoff]
            self.model.settle(grant.shared)
        self.end_quarantine([q for q in self.model.quarantined if q[1].writer == writer])

    def end_quarantine(self, over: list[tuple[HandoffId, Granted]]) -> None:
        """One after another: who is the last to give a block back decides when it is evicted."""
        for entry in over:
            self.model.quarantined.remove(entry)
            self.model.settle(entry[1].shared)

    @rule(limit=st.integers(1, 3))
    def offer(self, limit: int) -> None:
        names = self.model.news[:limit]
        blocks = [self.model.named[name] for name in names]
        assert self.pool.offer(limit) == list(zip(names, blocks, strict=True))
        self.model.news = self.model.news[limit:]
        self.model.unused = [block for block in self.model.unused if block not in blocks]
        if blocks:
            self.model.exported.append(blocks)

    @invariant()
    def every_block_is_in_one_state_and_all_are_there(self) -> None:
        found = self.pool.counts()
        assert found.total == self.model.size
        assert {s: getattr(found, s) for s in KVCounts.__struct_fields__} == self.model.counts()
        assert self.pool.available == found.free + found.cached
        assert self.pool.open_grants == len(self.model.granted)
        assert max(self.model.owners(block) for block in range(self.model.size)) <= 1

    def teardown(self) -> None:
        for writer in WRITERS:
            self.writer_gone(writer)
        while self.model.held:
            self.free(0)
        while self.model.exported:
            self.release(0)
        assert self.pool.counts().idle


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
