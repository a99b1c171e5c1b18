"""What each step computes: no runner, tokens appended by hand."""

from collections.abc import Sequence

import pytest
from engine_rig import BLOCK, MAX_STEPS, ask, fake_config
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.engine.config import SchedulerConfig
from splitserve.engine.fake import FakeRunner
from splitserve.engine.kv.blocks import BlockPool
from splitserve.engine.scheduler import Chunk, Scheduler
from splitserve.engine.sequence import Seq, new_seq
from splitserve.errors import BugError, ConfigError
from splitserve.ids import HandoffId, WorkerId

BUDGET = 16
WRITER = WorkerId("prefill-0")


class Rig:
    """A scheduler whose steps are carried out at once: every sampled token is 7."""

    def __init__(
        self,
        num_blocks: int = 64,
        *,
        budget: int = BUDGET,
        seqs: int = 8,
        caching: bool = True,
    ) -> None:
        config = SchedulerConfig(seqs, budget, caching)
        self.pool = BlockPool(num_blocks)
        self.scheduler = Scheduler(config, self.pool, BLOCK)
        runner = FakeRunner(fake_config(num_blocks=num_blocks, max_model_len=4096))
        self.info = runner.describe()
        runner.close()
        self._arrivals = 0

    def add(
        self,
        name: str,
        tokens: Sequence[int],
        max_tokens: int = 100,
        *,
        priority: int = 0,
        push: bool = False,
    ) -> Seq:
        self._arrivals += 1
        request = ask(name, tokens, max_tokens, priority=priority)
        seq = new_seq(request, self.info, self._arrivals, push=push)
        self.scheduler.submit(seq)
        return seq

    def apply(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            seq = chunk.seq
            seq.num_computed = chunk.end
            self.scheduler.register(seq, chunk.end)
            if seq.remaining == 0:
                seq.tokens.append(7)
                if seq.push or seq.ending(len(seq.tokens))[0] is not None:
                    self.scheduler.leave(seq)
                    self.pool.free(seq.blocks)

    def step(self) -> dict[str, int]:
        """Tokens that the step computed, by request, in order."""
        chunks = self.scheduler.schedule()
        self.apply(chunks)
        return {str(chunk.seq.request_id): chunk.end - chunk.start for chunk in chunks}

    def grant(self, name: str, count: int) -> None:
        assert self.pool.grant(HandoffId(name), WRITER, count) is not None


def unlike(number: int, length: int) -> list[int]:
    """A prompt that shares no block with those of other numbers."""
    return [number] + [index % 50 for index in range(length - 1)]


# Chunks


@pytest.mark.parametrize("length", [1, BUDGET - 1, BUDGET, BUDGET + 1, 3 * BUDGET + 5])
def test_a_prompt_is_computed_once_in_chunks_that_end_at_block_borders(length: int) -> None:
    rig = Rig()
    seq = rig.add("r", unlike(1, length))
    parts = []
    while seq.num_computed < length:
        parts.append(rig.step()["r"])
    assert sum(parts) == length
    assert max(parts) <= BUDGET
    assert parts[:-1] == [BUDGET] * (len(parts) - 1)
    assert len(seq.tokens) == length + 1


def test_a_chunk_that_does_not_end_the_prompt_is_cut_to_whole_blocks() -> None:
    rig = Rig(budget=11)
    rig.add("r", unlike(1, 30))
    assert [rig.step()["r"] for _ in range(4)] == [8, 8, 8, 6]


def test_a_step_never_exceeds_its_budget() -> None:
    rig = Rig(budget=10)
    for number in range(6):
        rig.add(f"r{number}", unlike(number, 3 + 5 * number), 5)
    for _ in range(40):
        assert sum(rig.step().values()) <= 10


def test_what_one_prompt_leaves_the_next_one_takes() -> None:
    rig = Rig()
    rig.add("a", unlike(1, 6))
    rig.add("b", unlike(2, 40))
    assert rig.step() == {"a": 6, "b": 8}


# Fairness


def test_decodes_come_before_prompts() -> None:
    rig = Rig(num_blocks=600)
    rig.add("old", unlike(1, 3))
    rig.step()
    for number in range(20):
        rig.add(f"prompt{number}", unlike(2 + number, 100))
    for _ in range(30):
        step = rig.step()
        assert next(iter(step)) == "old"
        assert len(step) > 1


def test_decodes_leave_a_block_for_a_waiting_prompt_and_take_turns() -> None:
    rig = Rig(num_blocks=256, budget=8, seqs=9)
    names = [f"r{number}" for number in range(8)]
    for number, name in enumerate(names):
        rig.add(name, unlike(number, 3))
    while len(rig.scheduler.running) < 8 or rig.scheduler.waiting_tokens():
        rig.step()
    rig.add("prompt", unlike(20, 400))
    steps = [rig.step() for _ in range(20)]
    assert all(step["prompt"] >= BLOCK for step in steps)
    assert {name: sum(name in step for step in steps) for name in names} == dict.fromkeys(names, 10)


def test_decodes_use_what_a_blocked_prompt_cannot() -> None:
    rig = Rig(budget=8, seqs=8)
    for number in range(8):
        rig.add(f"r{number}", unlike(number, 3))
    while len(rig.scheduler.running) < 8 or rig.scheduler.waiting_tokens():
        rig.step()
    rig.add("no slot", unlike(20, 40))
    assert rig.step() == {f"r{number}": 1 for number in range(8)}


def test_more_important_prompts_go_first_then_earlier_ones() -> None:
    rig = Rig()
    for name, priority in (("c", 1), ("a", 0), ("d", 1), ("b", 0)):
        rig.add(name, unlike(ord(name), 10), priority=priority)
    assert rig.step() == {"a": 10, "b": 4}
    assert rig.step() == {"a": 1, "b": 6, "c": 8}
    assert rig.step() == {"a": 1, "b": 1, "c": 2, "d": 10}


def test_a_started_prompt_yields_to_a_more_important_one() -> None:
    rig = Rig()
    rig.add("long", unlike(1, 100), priority=1)
    rig.step()
    rig.add("urgent", unlike(2, 10))
    assert rig.step() == {"urgent": 10, "long": 4}


def test_nobody_overtakes_the_first_that_waits_for_room() -> None:
    rig = Rig(num_blocks=10)
    rig.add("running", unlike(1, 16))
    rig.step()
    rig.add("large", unlike(2, 28))
    rig.add("small", unlike(3, 2))
    for _ in range(5):
        assert list(rig.step()) == ["running"]
    running = rig.scheduler.running[0]
    rig.scheduler.leave(running)
    rig.pool.free(running.blocks)
    assert "large" in rig.step()


def test_at_most_max_num_seqs_run_and_grants_count() -> None:
    rig = Rig(seqs=3)
    rig.grant("h", 1)
    for number in range(4):
        rig.add(f"r{number}", unlike(number, 2))
    assert list(rig.step()) == ["r0", "r1"]
    assert list(rig.step()) == ["r0", "r1"]
    rig.pool.cancel(HandoffId("h"))
    assert list(rig.step()) == ["r0", "r1", "r2"]


# Room


def test_a_decode_without_a_block_preempts_the_last_sequence() -> None:
    rig = Rig(num_blocks=6, caching=False)
    for name in ("a", "b", "c"):
        rig.add(name, unlike(ord(name), 3), priority=0 if name != "b" else 1)
    rig.step()
    while not rig.scheduler.preemptions:
        rig.step()
    (waiting,) = rig.scheduler.waiting
    assert waiting.request_id == "b"
    assert waiting.blocks == []
    assert waiting.num_computed == 0
    assert len(waiting.tokens) > 4


def test_a_preempted_sequence_goes_on_where_it_was() -> None:
    rig = Rig(num_blocks=6)
    a = rig.add("a", unlike(1, 8), 12)
    b = rig.add("b", unlike(2, 7), 12)
    lengths = []
    while b.remaining and (a.is_running or b.is_running or rig.scheduler.waiting):
        rig.step()
        lengths.append(len(b.tokens))
    assert rig.scheduler.preemptions >= 1
    assert lengths == sorted(lengths)
    assert (len(a.tokens), len(b.tokens)) == (20, 19)


def test_a_pushing_sequence_is_never_preempted() -> None:
    rig = Rig(num_blocks=16)
    a = rig.add("a", unlike(1, 4))
    push = rig.add("push", unlike(2, 44), push=True)
    rig.step()
    held = list(push.blocks)
    rig.grant("h", rig.pool.available)
    assert rig.step() == {"push": 16}
    assert rig.step() == {"push": 16}
    assert push.blocks == held
    assert rig.step() == {"a": 1}
    assert not push.is_running
    assert rig.scheduler.preemptions == 0
    assert a.is_running


def test_a_decode_with_nobody_after_it_waits_and_keeps_its_kv() -> None:
    rig = Rig(num_blocks=4)
    seq = rig.add("a", unlike(1, 4))
    rig.step()
    rig.grant("h", rig.pool.available)
    assert len(seq.blocks) == 1
    assert not rig.scheduler.has_work()
    assert rig.step() == {}
    assert seq.num_computed == 4
    rig.pool.cancel(HandoffId("h"))
    assert not rig.scheduler.has_work()
    rig.pool.writer_gone(WRITER)
    assert rig.scheduler.has_work()
    assert rig.step() == {"a": 1}


def test_a_prompt_is_admitted_only_with_a_spare_block_for_each_that_grows() -> None:
    rig = Rig(num_blocks=6)
    rig.add("a", unlike(1, 3))
    rig.step()
    rig.add("b", unlike(2, 20))
    assert list(rig.step()) == ["a"]
    assert rig.scheduler.has_place_for_grant(1, []) is False
    rig = Rig(num_blocks=7)
    rig.add("a", unlike(1, 3))
    rig.step()
    rig.add("b", unlike(2, 20))
    assert list(rig.step()) == ["a", "b"]


def test_a_lone_prompt_may_take_the_whole_pool() -> None:
    rig = Rig(num_blocks=4)
    rig.add("a", unlike(1, 16), 1)
    assert rig.step() == {"a": 16}
    assert rig.pool.counts().idle


def test_what_waits_for_room_is_not_overtaken_by_grants() -> None:
    rig = Rig(num_blocks=10)
    rig.add("running", unlike(1, 12))
    rig.step()
    assert rig.scheduler.has_place_for_grant(6, [])
    assert not rig.scheduler.has_place_for_grant(7, [])
    rig.add("large", unlike(2, 28))
    rig.step()
    assert not rig.scheduler.has_place_for_grant(1, [])


def test_decodes_that_lack_a_block_do_not_wait_for_each_other() -> None:
    """The one whose turn it is cannot preempt, the one that can has no turn."""
    rig = Rig(num_blocks=5, budget=BLOCK + 1, seqs=2, caching=False)
    seqs = [rig.add(f"r{number}", [number], 16) for number in range(3)]
    while any(len(seq.tokens) < 17 for seq in seqs):
        assert rig.step()
    assert not rig.scheduler.has_work()


def test_a_sequence_that_is_preempted_and_back_in_one_step_is_computed_once() -> None:
    """Its blocks are cached, so what it lacks is a single one."""
    rig = Rig(num_blocks=6, budget=BLOCK + 1, seqs=2)
    for number in range(3):
        rig.add(f"r{number}", [0], 16)
    while not rig.scheduler.preemptions:
        step = rig.scheduler.schedule()
        assert len({chunk.seq.request_id for chunk in step}) == len(step)
        rig.apply(step)
    assert len(rig.scheduler.running) == 2


def test_what_a_step_computes_is_not_preempted_in_it() -> None:
    rig = Rig(num_blocks=12, budget=BLOCK + 1, caching=False)
    first, second = rig.add("first", [1, 2]), rig.add("second", [3])
    rig.step()
    rig.add("push", unlike(1, 12), push=True)
    rig.add("large", unlike(2, 40))
    assert rig.step() == {"first": 1, "push": 4}
    assert rig.step() == {"second": 1, "push": 4}
    assert rig.step() == {"first": 1, "push": 4}
    rig.grant("all", rig.pool.available)
    assert first.num_computed == len(first.blocks) * BLOCK
    assert rig.step() == {"second": 1}
    assert second.is_running
    assert rig.step() == {"first": 1}
    assert not second.is_running


# Prefix cache


def test_the_second_prompt_takes_full_blocks_from_the_first() -> None:
    rig = Rig()
    first = rig.add("a", unlike(1, 10))
    rig.step()
    second = rig.add("b", [*unlike(1, 9), 99, 98, 97])
    assert rig.step() == {"a": 1, "b": 4}
    assert second.blocks[:2] == first.blocks[:2]
    assert second.cached_tokens == 8
    assert (rig.scheduler.prefix_hit_tokens, rig.scheduler.prefix_query_tokens) == (8, 22)


def test_of_a_fully_cached_prompt_the_last_block_is_computed() -> None:
    rig = Rig()
    first = rig.add("a", unlike(1, 12))
    rig.step()
    second = rig.add("b", unlike(1, 12))
    assert rig.step() == {"a": 1, "b": 4}
    assert second.cached_tokens == 8
    assert first.blocks[2] not in second.blocks


def test_blocks_are_offered_only_once_they_are_computed() -> None:
    rig = Rig(budget=8)
    rig.add("slow", unlike(1, 20), priority=1)
    rig.step()
    urgent = rig.add("urgent", unlike(1, 20))
    assert rig.step() == {"urgent": 8}
    assert urgent.cached_tokens == 8


def test_a_failed_step_is_scheduled_again() -> None:
    rig = Rig()
    rig.add("a", unlike(1, 20))
    rig.add("b", unlike(2, 3))
    once = rig.scheduler.schedule()
    again = rig.scheduler.schedule()
    assert once == again
    assert rig.pool.find(rig.scheduler.running[0].digests) == []


def test_answers_are_cached_too() -> None:
    rig = Rig()
    a = rig.add("a", unlike(1, 4), 9)
    while rig.scheduler.has_work():
        rig.step()
    b = rig.add("b", a.tokens)
    rig.step()
    assert b.cached_tokens == 12


def test_without_prefix_caching_nothing_is_shared() -> None:
    rig = Rig(caching=False)
    rig.add("a", unlike(1, 12), 1)
    rig.step()
    b = rig.add("b", unlike(1, 12))
    assert rig.step() == {"b": 12}
    assert b.cached_tokens == 0
    assert rig.pool.counts().cached == 0


# Limits


@pytest.mark.parametrize(
    "config", [SchedulerConfig(8, BLOCK), SchedulerConfig(0, 16), SchedulerConfig(-1, 16)]
)
def test_limits_that_let_nothing_run_are_refused(config: SchedulerConfig) -> None:
    with pytest.raises(ConfigError):
        Scheduler(config, BlockPool(4), BLOCK)


def test_a_sequence_that_is_not_here_cannot_leave() -> None:
    rig = Rig()
    seq = rig.add("a", [1])
    rig.scheduler.leave(seq)
    with pytest.raises(BugError):
        rig.scheduler.leave(seq)


# Progress

REQUESTS = st.lists(
    st.tuples(
        st.integers(1, 8),
        st.sampled_from([1, 4, 13, 13, 13]),
        st.sampled_from([0, 0, 1]),
        st.sampled_from([False, False, True]),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=300, deadline=None)
@given(
    requests=REQUESTS,
    num_blocks=st.sampled_from([5, 5, 6, 12, 16]),
    budget=st.sampled_from([BLOCK + 1, BLOCK + 2, 9, 20]),
    seqs=st.sampled_from([1, 2, 3, 9]),
    caching=st.booleans(),
    pace=st.sampled_from([1, 4]),
    kinds=st.sampled_from([1, 3]),
)
def test_every_finite_set_of_requests_ends(
    requests: list[tuple[int, int, int, bool]],
    num_blocks: int,
    budget: int,
    seqs: int,
    caching: bool,
    pace: int,
    kinds: int,
) -> None:
    rig = Rig(num_blocks, budget=budget, seqs=seqs, caching=caching)
    added: list[Seq] = []
    for step in range(MAX_STEPS):
        if len(added) < len(requests) and step % pace == 0:
            prompt, answer, priority, push = requests[len(added)]
            tokens = unlike(len(added) % kinds, prompt)
            name = f"r{len(added)}"
            added.append(rig.add(name, tokens, answer, priority=priority, push=push))
        work = rig.scheduler.has_work()
        chunks = rig.scheduler.schedule()
        assert bool(chunks) == work
        assert sum(chunk.end - chunk.start for chunk in chunks) <= budget
        assert len({chunk.seq.request_id for chunk in chunks}) == len(chunks)
        for seq, start, end in chunks:
            assert seq.num_computed == start < end <= len(seq.blocks) * BLOCK
        assert len(rig.scheduler.running) <= seqs
        rig.apply(chunks)
        if len(added) == len(requests) and not work:
            break
    assert rig.scheduler.running == rig.scheduler.waiting == []
    assert rig.pool.counts().idle
    assert [len(seq.tokens) for seq in added] == [
        seq.prompt_len + 1 if seq.push else seq.max_len for seq in added
    ]
