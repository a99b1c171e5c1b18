"""Two engines and everything that can happen between them, in any order.

Whatever the interleaving, each answer is the one that an undisturbed engine gives, no block is
lost, and blocks that a writer may still write into are never used: the late writer really writes.
So does a device that is a step behind: what it is given is computed when it is collected.
"""

import ctypes
from dataclasses import dataclass, field

from engine_rig import (
    BLOCK,
    MAX_STEPS,
    Recorder,
    ask,
    copy_block,
    drain,
    expected,
    fake_config,
    prefill_into,
    pusher,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from splitserve.engine.api import Fetch, PushSpan, Reservation, SeqOutput
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.engine.fake import FakeRunner
from splitserve.errors import CallerError
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.sampling import SamplingParams

PICK = st.integers(0, 1 << 16)
WRITERS = [WorkerId("p0"), WorkerId("p1")]
PROMPTS = st.one_of(
    st.lists(st.integers(0, 1), min_size=1, max_size=5),
    st.builds(lambda n, last: [*range(n), last], st.integers(0, 12), st.integers(90, 92)),
)
SAMPLING = st.builds(
    SamplingParams,
    seed=st.integers(0, 3),
    max_tokens=st.sampled_from([1, 2, 5, 14, 15, 16]),
    temperature=st.sampled_from([0.0, 1.0]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    min_tokens=st.integers(0, 4),
    stop_token_ids=st.sampled_from([(), (), tuple(range(10, 22))]),
)


@dataclass
class Asked:
    """A request and what came of it. ``answer`` grows from what is known elsewhere."""

    request: GenerateRequest
    want: list[int]
    push: bool = False
    answer: list[int] = field(default_factory=list)


@dataclass
class Granted:
    request: GenerateRequest
    reservation: Reservation
    writer: WorkerId


class Split(RuleBasedStateMachine):
    depth = 1

    @initialize(
        num_blocks=st.integers(5, 9),
        seqs=st.integers(2, 6),
        budget=st.integers(BLOCK + 1, 14),
        caching=st.booleans(),
    )
    def start(self, num_blocks: int, seqs: int, budget: int, caching: bool) -> None:
        self.config = fake_config(
            num_blocks=num_blocks,
            depth=self.depth,
            scheduler=SchedulerConfig(seqs, budget, caching),
        )
        self.engine = EngineCore(FakeRunner(self.config), self.config.scheduler)
        source = fake_config(depth=self.depth)
        self.source = EngineCore(FakeRunner(source), source.scheduler)
        self.asked: dict[RequestId, Asked] = {}
        self.granted: dict[HandoffId, Granted] = {}
        self.voided: list[tuple[HandoffId, Granted]] = []
        self.exports: set[RequestId] = set()
        self.fetches: list[tuple[GenerateRequest, Fetch]] = []
        self.number = 0

    def new_request(self, tokens: list[int], sampling: SamplingParams, priority: int) -> Asked:
        self.number += 1
        request = ask(f"r{self.number}", tokens, sampling=sampling, priority=priority)
        return Asked(request, expected(request, self.config))

    # Whole requests

    @rule(
        tokens=PROMPTS,
        sampling=SAMPLING,
        priority=st.integers(-1, 1),
        push=st.booleans(),
        replay=st.integers(0, 3),
    )
    def add(
        self, tokens: list[int], sampling: SamplingParams, priority: int, push: bool, replay: int
    ) -> None:
        asked = self.new_request(tokens, sampling, priority)
        asked.push = push
        asked.answer = asked.want[: min(replay, len(asked.want) - 1)]
        try:
            self.engine.add(asked.request, emitted=asked.answer, push=push)
        except CallerError:
            assert len(tokens) + sampling.max_tokens - 1 > self.config.num_blocks * BLOCK
        else:
            self.asked[asked.request.request_id] = asked

    @rule(
        prompts=st.lists(st.one_of(st.just([0]), PROMPTS), min_size=2, max_size=4),
        temperature=st.sampled_from([0, 1]),
    )
    def crowd(self, prompts: list[list[int]], temperature: float) -> None:
        """Enough long answers at once to run out of blocks."""
        for tokens in prompts:
            sampling = SamplingParams(seed=1, max_tokens=16, temperature=temperature)
            self.add(tokens, sampling, 0, push=False, replay=0)
        self.step(14)

    @rule(count=st.sampled_from([1, 2, 6, 12]))
    def step(self, count: int) -> None:
        for _ in range(count):
            work = self.engine.has_work()
            steps = self.engine.stats().steps
            for output in self.engine.step():
                self.check(output)
            assert self.depth > 1 or self.engine.stats().steps - steps == work

    def check(self, output: SeqOutput) -> None:
        asked = self.asked[output.request_id]
        assert output.index == len(asked.answer)
        asked.answer.append(output.token_id)
        assert asked.answer == asked.want[: len(asked.answer)]
        over = len(asked.answer) == len(asked.want)
        assert (output.finish_reason is not None) == over
        assert output.handed_off == (asked.push and not over)
        if over or asked.push:
            del self.asked[output.request_id]
            if asked.push:
                self.exports.add(output.request_id)

    @precondition(lambda self: self.asked)
    @rule(pick=PICK, again=st.booleans(), tokens=PROMPTS)
    def abort(self, pick: int, again: bool, tokens: list[int]) -> None:
        """What is asked again under the same id is another request."""
        request_id = sorted(self.asked)[pick % len(self.asked)]
        self.engine.abort(request_id)
        del self.asked[request_id]
        if again:
            request = ask(request_id, tokens, 3)
            self.engine.add(request)
            self.asked[request_id] = Asked(request, expected(request, self.config))

    @rule(pick=PICK)
    def release(self, pick: int) -> None:
        known = [*sorted(self.exports), RequestId("unknown")]
        request_id = known[pick % len(known)]
        self.engine.release(request_id)
        self.exports.discard(request_id)

    # Handoffs

    @rule(
        tokens=PROMPTS,
        sampling=SAMPLING,
        priority=st.integers(-1, 1),
        writer=st.sampled_from(WRITERS),
        handoff=st.sampled_from(["h0", "h1", "h2"]),
    )
    def reserve(
        self,
        tokens: list[int],
        sampling: SamplingParams,
        priority: int,
        writer: WorkerId,
        handoff: str,
    ) -> None:
        name = HandoffId(handoff)
        asked = self.new_request(tokens, sampling, priority)
        try:
            reservation = self.engine.reserve(name, asked.request, writer)
        except CallerError:
            too_long = len(tokens) + sampling.max_tokens - 1 > self.config.num_blocks * BLOCK
            assert too_long or name in self.granted
            return
        if reservation is not None:
            assert reservation.skip_blocks + len(reservation.blocks) == -(-len(tokens) // BLOCK)
            self.granted[name] = Granted(asked.request, reservation, writer)

    @precondition(lambda self: self.granted)
    @rule(pick=PICK)
    def deliver(self, pick: int) -> None:
        """The prompt is computed elsewhere and pushed; KVReady comes twice."""
        handoff = sorted(self.granted)[pick % len(self.granted)]
        granted = self.granted.pop(handoff)
        request, epoch = granted.request, granted.reservation.epoch
        first = prefill_into(self.source, self.engine, request, granted.reservation)
        assert not self.engine.activate(handoff, epoch + 1, first.token_id)
        activated = self.engine.activate(handoff, epoch, first.token_id)
        assert activated == (first.finish_reason is None)
        if activated:
            want = expected(request, self.config)
            self.asked[request.request_id] = Asked(request, want, answer=[first.token_id])
        assert not self.engine.activate(handoff, epoch, first.token_id)

    @precondition(lambda self: self.granted)
    @rule(pick=PICK, part=st.integers(0, 2))
    def push_partly(self, pick: int, part: int) -> None:
        """A push that is cut off: some of the KV is there, KVReady never comes."""
        granted = self.granted[sorted(self.granted)[pick % len(self.granted)]]
        self.source.add(granted.request, push=True)
        sink = pusher(self.source, self.engine, granted.reservation)
        for _ in range(part):
            self.source.step(sink)
        self.source.abort(granted.request.request_id)
        assert drain(self.source) == []

    @rule(handoff=st.sampled_from(["h0", "h1", "h2"]))
    def cancel(self, handoff: str) -> None:
        name = HandoffId(handoff)
        granted = self.granted.pop(name, None)
        epoch = self.engine.cancel(name)
        assert epoch == (None if granted is None else granted.reservation.epoch)
        if granted is not None:
            self.voided.append((name, granted))

    @precondition(lambda self: self.voided)
    @rule(pick=PICK)
    def fence(self, pick: int) -> None:
        handoff, granted = self.voided.pop(pick % len(self.voided))
        self.engine.fence(handoff, granted.reservation.epoch)
        self.engine.fence(handoff, granted.reservation.epoch)

    @rule(writer=st.sampled_from(WRITERS))
    def writer_gone(self, writer: WorkerId) -> None:
        ended = [name for name, granted in self.granted.items() if granted.writer == writer]
        assert sorted(self.engine.writer_gone(writer)) == sorted(ended)
        for name in ended:
            del self.granted[name]
        self.voided = [entry for entry in self.voided if entry[1].writer != writer]

    # KV from elsewhere

    @rule(tokens=PROMPTS, limit=st.integers(0, 13))
    def fetch(self, tokens: list[int], limit: int) -> None:
        self.number += 1
        request = ask(f"r{self.number}", tokens, 2)
        fetch = self.engine.fetch(request, push=True, tokens=limit)
        if fetch is not None:
            count = fetch.first + len(fetch.blocks)
            assert fetch.first < count <= min(limit, len(tokens) - 1) // BLOCK
            self.fetches.append((request, fetch))

    @precondition(lambda self: self.fetches)
    @rule(pick=PICK, count=st.integers(0, 3))
    def adopt(self, pick: int, count: int) -> None:
        """All of it comes, and some of it is used."""
        request, fetch = self.fetches.pop(pick % len(self.fetches))

        def copy(span: PushSpan, layer: int) -> None:
            for place, block in enumerate(span.blocks, start=span.first - fetch.first):
                if 0 <= place < len(fetch.blocks):
                    copy_block(self.source, block, self.engine, fetch.blocks[place], layer)

        self.source.add(request, push=True)
        drain(self.source, Recorder(copy))
        self.source.release(request.request_id)
        self.engine.adopt(fetch, min(count, len(fetch.blocks)))

    @precondition(lambda self: self.fetches)
    @rule(pick=PICK)
    def drop(self, pick: int) -> None:
        self.engine.drop(self.fetches.pop(pick % len(self.fetches))[1])

    @rule(limit=st.integers(0, 3))
    def offer(self, limit: int) -> None:
        """Copied elsewhere at once."""
        offered = self.engine.offer(limit)
        assert len(offered) <= limit
        self.engine.unpin([block for _, block in offered])

    @rule(value=st.integers(0, 255))
    def late_writes(self, value: int) -> None:
        """Every writer that has not confirmed a fence writes into all it was ever granted, and what
        is fetched may come half."""
        layout = self.config.layout
        address = self.engine.regions()[0].address
        written = [fetch.blocks for _, fetch in self.fetches]
        for granted in [*self.granted.values(), *(granted for _, granted in self.voided)]:
            written.append(granted.reservation.blocks)
        for blocks in written:
            for block in blocks:
                for layer in range(layout.num_layers):
                    ctypes.memset(address + layout.offset(layer, block), value, layout.block_bytes)

    @invariant()
    def the_ledger_adds_up(self) -> None:
        counts = self.engine.counts()
        assert counts.total == self.config.num_blocks
        told = sum(len(granted.reservation.blocks) for _, granted in self.voided)
        assert counts.quarantined >= told
        assert self.source.counts().idle
        in_use = self.asked or self.granted or self.voided or self.exports or self.fetches
        if not in_use and not self.engine.has_work():
            assert counts.idle
        assert in_use or self.depth > 1 or not self.engine.has_work()

    def teardown(self) -> None:
        while self.fetches:
            self.drop(0)
        for writer in WRITERS:
            self.writer_gone(writer)
        for request_id in list(self.exports):
            self.engine.release(request_id)
        for _ in range(MAX_STEPS):
            if not self.engine.has_work():
                break
            self.step(1)
            for request_id in list(self.exports):
                self.engine.release(request_id)
        assert self.asked == {}
        assert self.engine.counts().idle
        self.engine.close()
        self.source.close()


class SplitAhead(Split):
    depth = 2


TestSplit = Split.TestCase
TestSplit.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSplitAhead = SplitAhead.TestCase
TestSplitAhead.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
