"""What a worker keeps in the host's tier, and which requests wait for it."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from scripted_tier import COUNTS, Scripted

from splitserve.engine.config import SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.engine.fake import FakeConfig, FakeRunner
from splitserve.ids import RequestId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.protocol.sampling import SamplingParams
from splitserve.protocol.telemetry import TierCounts
from splitserve.roles.tiering import PINNED_SHARE, STORING_AT_REST, WAIT_S, Tiering
from splitserve.tier.config import TierConfig
from splitserve.tier.copier import HostBlockCopier
from splitserve.tier.levels import Levels
from splitserve.tier.opening import Tier, open_tier
from splitserve.tier.worker_thread import Loaded, LoadId, Stored, TierThread

BLOCK = 4
PROMPT = tuple(range(20, 20 + 5 * BLOCK))
WHOLE = len(PROMPT) // BLOCK - 1
"""Blocks that can be brought: never the one with the prompt's last token."""


def make_engine(num_blocks: int = 64) -> EngineCore:
    config = FakeConfig(
        vocab_size=100,
        block_size=BLOCK,
        num_blocks=num_blocks,
        max_model_len=128,
        scheduler=SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=32),
    )
    return EngineCore(FakeRunner(config), config.scheduler)


def ask(name: str, tokens: Sequence[int] = PROMPT, salt: str = "") -> GenerateRequest:
    params = SamplingParams(seed=0, temperature=0.0, max_tokens=4)
    return GenerateRequest(RequestId(name), tuple(tokens), params, cache_salt=salt)


def answer(engine: EngineCore) -> list[int]:
    """Runs the engine until it has nothing to do; the tokens it gave."""
    tokens = []
    while engine.has_work():
        tokens += [output.token_id for output in engine.step()]
    return tokens


@dataclass
class Rig:
    engine: EngineCore
    tier: Scripted
    tiering: Tiering
    now: list[float]
    started: list[str]

    def wait_for(self, request: GenerateRequest) -> bool:
        def start() -> None:
            self.started.append(request.request_id)
            self.engine.add(request)

        return self.tiering.wait_for(request, start)

    def the_load(self) -> LoadId:
        (load,) = self.tier.loads
        return load

    def end(self, count: int) -> None:
        self.tier.ends.append(Loaded(self.the_load(), count))
        self.tiering.tick()


def make_rig(num_blocks: int = 64) -> Rig:
    engine, tier, now = make_engine(num_blocks), Scripted(), [0.0]
    return Rig(engine, tier, Tiering(engine, tier, lambda: now[0]), now, [])


@pytest.fixture
def rig() -> Rig:
    return make_rig()


# Over a scripted tier


def test_a_request_waits_until_its_load_has_ended(rig: Rig) -> None:
    assert rig.wait_for(ask("a"))
    rig.tiering.tick()
    assert rig.tiering.pending
    assert rig.started == []
    digests, blocks = rig.tier.loads[rig.the_load()]
    assert len(digests) == len(blocks) == WHOLE
    rig.end(0)
    assert rig.started == ["a"]
    rig.tiering.abort(RequestId("a"))  # none of its business any more
    assert len(answer(rig.engine)) == 4
    assert rig.engine.counts().idle


def test_nothing_is_asked_for_what_the_cache_has(rig: Rig) -> None:
    rig.engine.add(ask("first"))
    answer(rig.engine)
    assert not rig.wait_for(ask("second"))
    assert rig.tier.loads == {}
    assert not rig.wait_for(ask("short", PROMPT[: BLOCK - 1]))


def test_only_what_lacks_is_asked_for(rig: Rig) -> None:
    rig.engine.add(ask("first", PROMPT[: 2 * BLOCK]))
    answer(rig.engine)
    assert rig.wait_for(ask("second"))
    digests, _ = rig.tier.loads[rig.the_load()]
    assert len(digests) == WHOLE - 2


def test_an_aborted_request_is_never_started_and_gives_its_blocks_back(rig: Rig) -> None:
    rig.wait_for(ask("a"))
    rig.tiering.abort(RequestId("a"))
    assert rig.tier.cancelled == [rig.the_load()]
    assert not rig.engine.counts().idle  # the tier may still write into them
    rig.end(0)
    assert rig.started == []
    assert rig.engine.counts().idle


def test_an_id_that_waits_again_is_not_started_by_its_earlier_load(rig: Rig) -> None:
    rig.wait_for(ask("a"))
    earlier = rig.the_load()
    rig.tiering.abort(RequestId("a"))
    rig.wait_for(ask("a"))
    rig.tier.ends.append(Loaded(earlier, 0))
    rig.tiering.tick()
    assert rig.started == []
    (later,) = set(rig.tier.loads) - {earlier}
    rig.tier.ends.append(Loaded(later, 0))
    rig.tiering.tick()
    assert rig.started == ["a"]


def test_a_slow_load_is_asked_to_end_and_a_hanging_one_is_not_waited_for(rig: Rig) -> None:
    rig.wait_for(ask("a"))
    rig.now[0] = WAIT_S
    rig.tiering.tick()
    rig.tiering.tick()
    assert rig.tier.cancelled == [rig.the_load()]
    assert rig.started == []
    rig.now[0] = 2 * WAIT_S
    rig.tiering.tick()
    assert rig.started == ["a"]
    assert len(answer(rig.engine)) == 4
    assert rig.engine.counts().held == WHOLE
    rig.end(0)
    assert rig.started == ["a"]
    assert rig.engine.counts().held == 0


def test_a_tier_that_hangs_in_a_load_is_not_asked_until_it_has_ended(rig: Rig) -> None:
    rig.wait_for(ask("a"))
    rig.now[0] = 2 * WAIT_S
    rig.tiering.tick()
    assert not rig.wait_for(ask("b", PROMPT[::-1]))
    assert rig.engine.counts().held == WHOLE
    rig.end(0)
    assert rig.wait_for(ask("b", PROMPT[::-1]))


def test_a_tier_that_hangs_in_a_block_to_store_is_not_asked_until_it_is_stored(rig: Rig) -> None:
    rig.engine.add(ask("a"))
    answer(rig.engine)
    rig.tiering.tick()
    rig.now[0] = WAIT_S
    rig.tiering.tick()
    rig.wait_for(ask("b", PROMPT[::-1]))
    rig.now[0] = 2 * WAIT_S
    rig.tiering.tick()
    assert not rig.wait_for(ask("c", PROMPT[::-1]))
    assert rig.tier.keep()
    rig.tiering.tick()
    assert rig.wait_for(ask("c", PROMPT[::-1]))


def test_a_tier_that_brings_one_block_after_another_is_asked(rig: Rig) -> None:
    """Something is under way all the time, and all of it ends in time."""
    rig.wait_for(ask("0"))
    for turn in range(1, 5):
        (before,) = rig.tier.loads
        rig.now[0] += 0.9 * WAIT_S
        assert rig.wait_for(ask(str(turn), [turn, *PROMPT[1:]]))
        rig.tier.loads.pop(before)
        rig.tier.ends.append(Loaded(before, 0))
        rig.tiering.tick()


def test_a_tier_at_rest_for_long_is_asked(rig: Rig) -> None:
    rig.now[0] = 10 * WAIT_S
    rig.tiering.tick()
    assert rig.wait_for(ask("a"))


def test_named_blocks_are_stored_once_and_pinned_until_then(rig: Rig) -> None:
    rig.engine.add(ask("a"))
    answer(rig.engine)
    rig.tiering.tick()
    stored = [block for _, block in rig.tier.stores]
    assert len(set(stored)) == len(stored) > 0
    assert rig.engine.counts().exported == len(stored)
    assert rig.tiering.pending
    while rig.tiering.pending:
        waiting = rig.engine.counts().exported
        rig.tier.ends += [Stored(block) for _, block in rig.tier.stores[-waiting:]]
        rig.tiering.tick()
    assert rig.engine.counts().idle
    before = list(rig.tier.stores)
    rig.tiering.tick()
    assert rig.tier.stores == before


@pytest.mark.parametrize(("num_blocks", "most"), [(16, 1), (64, 4), (64 * 64, STORING_AT_REST)])
def test_only_a_small_share_of_the_pool_is_pinned(num_blocks: int, most: int) -> None:
    rig = make_rig(num_blocks)
    for number in range(min(40, num_blocks // 4)):
        tokens = [token + number for token in range(10, 10 + 3 * BLOCK)]
        rig.engine.add(ask(f"r{number}", tokens))
        answer(rig.engine)
    rig.tiering.tick()
    assert len(rig.tier.stores) == most
    assert most <= max(1, num_blocks // PINNED_SHARE)
    rig.tiering.tick()
    assert len(rig.tier.stores) == most


def test_what_each_level_did_is_told(rig: Rig) -> None:
    assert rig.tiering.counts() == (
        TierCounts(
            "memory", COUNTS.hits, COUNTS.misses, COUNTS.nbytes, COUNTS.evictions, COUNTS.corrupt
        ),
    )


# Over the real one


@dataclass
class Worker:
    engine: EngineCore
    tier: Tier
    tiering: Tiering

    def settle(self) -> None:
        """Ticks until nothing is under way."""
        self.tiering.tick()
        while self.tiering.pending:
            time.sleep(0.0005)  # lets the tier's thread run
            self.tiering.tick()

    def serve(self, request: GenerateRequest) -> list[int]:
        if not self.tiering.wait_for(request, lambda: self.engine.add(request)):
            self.engine.add(request)
        while not self.engine.has_work():
            time.sleep(0.0005)
            self.tiering.tick()
        return answer(self.engine)

    def found(self) -> int:
        """Tokens of prompts that did not have to be computed, so far."""
        return self.engine.stats().prefix_hit_tokens


@pytest.fixture
def make_worker(tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    """Workers of one host. Eight blocks fit in memory, all on disk."""
    shared = tmp_path / "shm"
    shared.mkdir()
    workers: list[Worker] = []

    def make() -> Worker:
        engine = make_engine()
        info = engine.describe()
        nbytes = info.layout.block_bytes * info.layout.num_layers + 64
        config = TierConfig(8 * nbytes, tmp_path / "disk", 1000 * nbytes)
        (region,) = engine.regions()
        tier = open_tier(
            config,
            info.content_hash,
            info.layout,
            lambda: HostBlockCopier(region, info.layout),
            shared,
        )
        assert tier is not None
        worker = Worker(engine, tier, Tiering(engine, tier.thread, time.monotonic))
        workers.append(worker)
        return worker

    yield make
    for worker in workers:
        worker.tier.close()
        worker.engine.close()


class Hanging(HostBlockCopier):
    """Holds the thread at the first block that it is to load, until it is opened."""

    def __init__(self, region: MemoryRegion, layout: KVLayout) -> None:
        super().__init__(region, layout)
        self.reached = threading.Event()
        self.opened = threading.Event()

    def landing(self, block: int) -> Sequence[memoryview]:
        self.reached.set()
        assert self.opened.wait(20.0)
        return super().landing(block)


def test_a_file_that_hangs_holds_the_blocks_of_one_request_only() -> None:
    """Together the requests' fetches would leave too little for any of them to run."""
    engine, now = make_engine(), [0.0]
    (region,) = engine.regions()
    copier = Hanging(region, engine.describe().layout)
    thread = TierThread(Levels([]), copier)
    tiering = Tiering(engine, thread, lambda: now[0])
    requests = [ask(name, [number, *PROMPT[1:]]) for number, name in enumerate("abc", 1)]
    thread.start()
    try:
        for request in requests:
            assert tiering.wait_for(request, partial(engine.add, request))
        assert copier.reached.wait(20.0)
        assert engine.counts().held == 3 * WHOLE
        for now[0] in (WAIT_S, 2 * WAIT_S):
            tiering.tick()
            tiering.tick()
        assert len(answer(engine)) == 3 * 4
        assert engine.counts().held == WHOLE
    finally:
        copier.opened.set()
        assert thread.close()
    tiering.tick()
    assert engine.counts().held == 0
    engine.close()


def test_a_prompt_computed_by_one_worker_is_brought_to_another(
    make_worker: Callable[[], Worker],
) -> None:
    one, two = make_worker(), make_worker()
    told = one.serve(ask("a"))
    one.settle()
    # The fake engine refuses KV that is not what its tokens say.
    assert two.serve(ask("b")) == told
    assert two.found() == WHOLE * BLOCK
    two.settle()
    assert two.engine.counts().idle


def test_an_edited_history_finds_what_comes_before_the_edit(
    make_worker: Callable[[], Worker],
) -> None:
    one, two = make_worker(), make_worker()
    one.serve(ask("a"))
    one.settle()
    edited = (*PROMPT[: 2 * BLOCK], 99, *PROMPT[2 * BLOCK + 1 :])
    assert two.serve(ask("b", edited)) == make_worker().serve(ask("c", edited, salt="alone"))
    assert two.found() == 2 * BLOCK


def test_another_tenants_prompt_is_never_found(make_worker: Callable[[], Worker]) -> None:
    one, two = make_worker(), make_worker()
    told = one.serve(ask("a", salt="one tenant"))
    one.settle()
    assert two.serve(ask("b", salt="another")) == told
    assert two.found() == 0


def test_what_left_memory_is_brought_from_disk(make_worker: Callable[[], Worker]) -> None:
    one, two = make_worker(), make_worker()
    told = one.serve(ask("a"))
    one.settle()
    for number in range(4):
        one.serve(ask(f"other{number}", [number + 30, *PROMPT]))
        one.settle()
    assert two.serve(ask("b")) == told
    assert two.found() == WHOLE * BLOCK
    two.settle()
    assert two.tier.thread.counts()["disk"].hits > 0
