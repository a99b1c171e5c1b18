"""EngineCore over a runner of depth 2: the next step is launched before the last one is known."""

from collections.abc import Sequence
from typing import Any

import pytest
from engine_rig import (
    BLOCK,
    Recorder,
    ask,
    drain,
    expected,
    fake_config,
    greedy,
    make_engine,
    prefill_into,
    tokens_of,
)

from splitserve.engine.api import PENDING, KVSink, PushSpan, Row, Sampled, SeqOutput
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.engine.fake import FakeRunner
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.generate import GenerateRequest

H = HandoffId("h")
P = WorkerId("prefill-0")
R = RequestId("r")
CONFIG = fake_config(depth=2, num_blocks=32)


class Watched(FakeRunner):
    """Notes what is launched and collected; fails when told, with nothing done."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(fake_config(**{"depth": 2, "num_blocks": 32, **fields}))
        self.launches: list[list[Row]] = []
        self.open: list[list[Row]] = []
        self.done = True
        self.fail = ""

    def launch(self, rows: Sequence[Row], sink: KVSink | None) -> None:
        if self.fail == "launch":
            raise OSError("launch")
        super().launch(rows, sink)
        self.launches.append(list(rows))
        self.open.append(list(rows))

    def ready(self) -> bool:
        return self.done

    def collect(self) -> list[Sampled]:
        self.open.pop(0)
        sampled = super().collect()
        if self.fail == "collect":
            self.fail = ""
            raise OSError("collect")
        return sampled

    def written(self) -> set[int]:
        """Blocks that the open launches write."""
        return {
            row.blocks[position // BLOCK]
            for rows in self.open
            for row in rows
            for position in range(row.start, row.start + len(row.tokens))
        }


def watched(**fields: Any) -> tuple[Watched, EngineCore]:
    runner = Watched(**fields)
    scheduler = fields.get("scheduler", CONFIG.scheduler)
    return runner, EngineCore(runner, scheduler)


def prompt(length: int, first: int = 0) -> list[int]:
    return [first, *(number % 90 for number in range(1, length))]


def steps(engine: EngineCore, number: int) -> list[SeqOutput]:
    return [output for _ in range(number) for output in engine.step()]


def names(rows: Sequence[Row]) -> list[str]:
    return [row.request_id for row in rows]


def stop_after(request: GenerateRequest, number: int) -> GenerateRequest:
    """The same with its token ``number`` as a stop id; that must be the first of its kind."""
    free = expected(request, CONFIG)
    assert free.index(free[number]) == number
    sampling = greedy(request.sampling.max_tokens, stop_token_ids=(free[number],))
    return ask(request.request_id, request.token_ids, sampling=sampling)


# The order of things


def test_the_next_step_is_launched_before_the_last_one_is_collected() -> None:
    runner, engine = watched()
    engine.add(ask("r", prompt(5), 4))
    assert engine.step() == []
    assert len(runner.open) == 1
    (output,) = engine.step()
    assert (output.index, len(runner.open)) == (0, 1)
    assert [row.follows for row in runner.launches[1]] == [0]
    assert runner.launches[1][0].tokens == [PENDING]
    outputs = [output, *drain(engine)]
    assert tokens_of(outputs, "r") == expected(ask("r", prompt(5), 4), CONFIG)
    assert [output.finish_reason for output in outputs] == [None, None, None, "length"]
    assert len(runner.launches) == 4


def test_a_row_follows_its_own_row_of_the_launch_before() -> None:
    runner, engine = watched(scheduler=SchedulerConfig(8, 16))
    requests = [ask("long", prompt(20, 1), 3), ask("a", prompt(3, 2), 6), ask("b", prompt(3, 3), 6)]
    for request in requests[1:]:
        engine.add(request)
    engine.step()
    engine.abort(RequestId("a"))
    engine.add(requests[0])
    engine.step()
    assert names(runner.launches[1]) == ["b", "long"]
    assert [row.follows for row in runner.launches[1]] == [1, None]
    outputs = drain(engine)
    assert tokens_of(outputs, "long") == expected(requests[0], CONFIG)


def test_an_engine_computes_while_a_launch_is_open_and_not_ready() -> None:
    runner, engine = watched()
    runner.done = False
    assert not engine.computing()
    engine.add(ask("r", prompt(5), 2))
    engine.step()
    assert engine.computing()
    assert engine.has_work()
    runner.done = True
    assert not engine.computing()
    drain(engine)
    runner.done = False
    assert not engine.computing()


def test_blocks_are_one_list_for_as_long_as_a_sequence_keeps_them() -> None:
    runner, engine = watched(num_blocks=6)
    for number in (1, 2):
        engine.add(ask(f"r{number}", prompt(4, number), 14))
    drain(engine)
    assert engine.stats().preemptions > 0
    tables: dict[str, tuple[int, Sequence[int]]] = {}
    changes = 0
    for row in (row for rows in runner.launches for row in rows):
        start, blocks = tables.get(row.request_id, (0, row.blocks))
        changes += blocks is not row.blocks
        assert (blocks is row.blocks) == (row.start > start or row.request_id not in tables)
        tables[row.request_id] = (row.start, row.blocks)
    assert changes == engine.stats().preemptions


# Ends


def test_what_is_known_to_end_is_not_launched_again() -> None:
    runner, engine = watched()
    engine.add(ask("r", prompt(5), 3))
    engine.add(ask("push", prompt(6, 1), 9), push=True)
    sink = Recorder()
    outputs = drain(engine, sink)
    assert [names(rows) for rows in runner.launches] == [["r", "push"], ["r"], ["r"]]
    assert [output.handed_off for output in outputs] == [False, True, False, False]


@pytest.mark.parametrize("number", [0, 3, 7])
def test_a_stop_token_that_shows_while_the_next_step_runs_ends_the_answer(number: int) -> None:
    runner, engine = watched()
    request = stop_after(ask("r", prompt(5), 20), number)
    other = ask("other", prompt(5, 1), 12)
    engine.add(request)
    engine.add(other)
    outputs = steps(engine, number + 2)
    assert tokens_of(outputs, "r") == expected(request, CONFIG)
    assert outputs[-2].finish_reason == "stop"
    assert "r" in names(runner.open[0])
    assert runner.written() & set(runner.open[0][0].blocks)
    held = engine.counts().held
    outputs += engine.step()
    assert "r" not in names(runner.open[0])
    assert engine.counts().held < held
    outputs += drain(engine)
    assert tokens_of(outputs, "r") == expected(request, CONFIG)
    assert tokens_of(outputs, "other") == expected(other, CONFIG)
    assert engine.counts().idle


def test_min_tokens_and_log_probabilities_do_not_wait() -> None:
    runner, engine = watched(eos_after=1)
    config = fake_config(eos_after=1)
    request = ask("r", prompt(5), sampling=greedy(20, min_tokens=6, logprobs=2))
    engine.add(request)
    outputs = drain(engine)
    assert tokens_of(outputs, "r") == expected(request, config)
    assert len(outputs) == 7
    assert all(output.logprob is not None for output in outputs)
    assert [rows[0].follows for rows in runner.launches] == [None, *[0] * 7]


def test_only_what_is_computed_and_known_can_be_shared() -> None:
    """The open launch computes position 7, the last of the second block."""
    _, engine = watched()
    request = ask("r", prompt(6), 9)
    engine.add(request)
    steps(engine, 3)
    fork = ask("fork", [*prompt(6), *expected(request, CONFIG), 1], 1)
    for cached in (4, 8):
        grant = engine.reserve(H, fork, P)
        assert grant is not None
        assert grant.cached_tokens == cached
        engine.cancel(H)
        engine.step()


# Aborts


def test_an_abort_frees_when_the_open_launch_is_collected_and_not_before() -> None:
    _, engine = watched()
    engine.add(ask("r", prompt(9), 9))
    engine.step()
    engine.abort(R)
    assert engine.counts().held == 3
    assert engine.stats().running == 0
    assert engine.step() == []
    assert engine.counts().idle
    assert not engine.has_work()


@pytest.mark.parametrize("push", [True, False])
def test_an_id_can_be_used_again_while_its_aborted_sequence_is_in_flight(push: bool) -> None:
    runner, engine = watched()
    engine.add(ask("r", prompt(9, 1), 9), push=push)
    engine.step(Recorder())
    for number in range(2, 6):
        engine.abort(R)
        engine.add(ask("r", prompt(9, number), 9), push=push)
        assert engine.step(Recorder()) == []
        assert len(runner.open) == 1
    outputs = drain(engine, Recorder())
    want = expected(ask("r", prompt(9, 5), 9), CONFIG)
    assert tokens_of(outputs, "r") == (want[:1] if push else want)
    engine.release(R)
    assert engine.counts().idle


@pytest.mark.parametrize("push", [True, False])
@pytest.mark.parametrize("number", range(5))
def test_a_grant_never_has_a_block_that_an_open_launch_writes(number: int, push: bool) -> None:
    runner, engine = watched(num_blocks=8)
    source = make_engine()
    engine.add(ask("r", prompt(13, 1), 9), push=push)
    for _ in range(number):
        engine.step(Recorder())
    engine.abort(R)
    assert not push or engine.counts().exported == 0
    reservation = engine.reserve(H, ask("s", prompt(9, 2), 9), P)
    assert reservation is not None
    assert not runner.written() & set(reservation.blocks)
    request = ask("s", prompt(9, 2), 9)
    first = prefill_into(source, engine, request, reservation)
    assert drain(engine) == []
    assert engine.activate(H, reservation.epoch, first.token_id)
    outputs = [first, *drain(engine)]
    assert tokens_of(outputs, "s") == expected(request, CONFIG)
    assert engine.counts().idle


# Rows that cannot run ahead


def test_a_penalty_waits_for_the_token_and_others_do_not() -> None:
    runner, engine = watched()
    held = ask("held", prompt(5, 1), sampling=greedy(5, presence_penalty=0.5))
    free = ask("free", prompt(5, 2), 9)
    engine.add(held)
    engine.add(free)
    outputs = drain(engine)
    assert tokens_of(outputs, "held") == expected(held, CONFIG)
    assert tokens_of(outputs, "free") == expected(free, CONFIG)
    turns = ["held" in names(rows) for rows in runner.launches]
    assert turns == [True, False] * 4 + [True]
    assert all("free" in names(rows) for rows in runner.launches)


def test_what_waits_for_a_token_takes_no_room_from_the_others() -> None:
    """A full budget of decodes is launched although one more sequence runs."""
    runner, engine = watched(scheduler=SchedulerConfig(8, BLOCK + 2))
    engine.add(ask("held", prompt(3, 1), sampling=greedy(12, presence_penalty=0.5)))
    for number in range(BLOCK + 2):
        engine.add(ask(f"r{number}", prompt(1, number + 2), 12))
    while len(runner.launches[-1] if runner.launches else []) < BLOCK + 2:
        engine.step()
    drain(engine)
    widths = [len(rows) for rows in runner.launches if "held" not in names(rows)]
    assert max(widths) == BLOCK + 2


# Memory


@pytest.mark.parametrize("caching", [True, False])
def test_short_of_memory_nothing_in_flight_is_preempted_and_everything_ends(caching: bool) -> None:
    runner, engine = watched(num_blocks=9, scheduler=SchedulerConfig(8, 16, caching))
    requests = [ask(f"r{number}", prompt(6 + number, number), 20) for number in range(6)]
    for request in requests:
        engine.add(request)
    outputs = drain(engine)
    for request in requests:
        assert tokens_of(outputs, request.request_id) == expected(request, CONFIG)
    assert engine.stats().preemptions > 0
    assert any(row.follows is not None for rows in runner.launches for row in rows)
    assert engine.counts().idle


# Exceptions


def test_after_a_failed_launch_the_one_before_still_counts() -> None:
    runner, engine = watched()
    request = ask("r", prompt(5), 6)
    engine.add(request)
    outputs = steps(engine, 2)
    runner.fail = "launch"
    with pytest.raises(OSError, match="launch"):
        engine.step()
    assert len(runner.open) == 1
    runner.fail = ""
    outputs += drain(engine)
    assert tokens_of(outputs, "r") == expected(request, CONFIG)
    assert len(runner.launches) == 6


def test_a_failed_collect_takes_back_all_that_is_open() -> None:
    runner, engine = watched()
    requests = [ask("r", prompt(20), 6), ask("s", prompt(5, 1), 6)]
    for request in requests:
        engine.add(request)
    outputs = steps(engine, 4)
    runner.fail = "collect"
    with pytest.raises(OSError, match="collect"):
        engine.step()
    assert runner.open == []
    assert engine.step() == []
    assert [row.follows for row in runner.open[0]] == [None, None]
    outputs += drain(engine)
    for request in requests:
        assert tokens_of(outputs, request.request_id) == expected(request, CONFIG)
    assert engine.counts().idle


def test_after_a_failed_collect_what_was_aborted_is_freed() -> None:
    runner, engine = watched()
    engine.add(ask("r", prompt(9), 9))
    steps(engine, 2)
    engine.add(ask("other", prompt(5, 1), 9))
    engine.abort(R)
    runner.fail = "collect"
    with pytest.raises(OSError, match="collect"):
        engine.step()
    assert engine.counts().held == 2
    assert tokens_of(drain(engine), "other") == expected(ask("other", prompt(5, 1), 9), CONFIG)
    assert engine.counts().idle


def test_a_push_whose_collect_failed_is_told_again() -> None:
    runner, engine = watched()
    engine.add(ask("r", prompt(24), 9), push=True)
    sink = Recorder()
    engine.step(sink)
    runner.fail = "collect"
    with pytest.raises(OSError, match="collect"):
        engine.step(sink)
    (output,) = drain(engine, sink)
    assert output.token_id == expected(ask("r", prompt(24), 9), CONFIG)[0]
    assert [[span.first for span in step] for step in sink.steps] == [[0], [4], [0], [4]]


def test_after_an_exception_from_the_sink_the_launch_before_still_counts() -> None:
    class Broken(Recorder):
        def begin(self, spans: Sequence[PushSpan]) -> None:
            raise OSError("link")

    runner, engine = watched()
    engine.add(ask("other", prompt(5, 1), 5))
    outputs = steps(engine, 2)
    engine.add(ask("r", prompt(9), 8), push=True)
    with pytest.raises(OSError, match="link"):
        engine.step(Broken())
    assert len(runner.open) == 1
    sink = Recorder()
    outputs += drain(engine, sink)
    assert tokens_of(outputs, "other") == expected(ask("other", prompt(5, 1), 5), CONFIG)
    assert tokens_of(outputs, "r") == expected(ask("r", prompt(9), 8), CONFIG)[:1]
    assert [[span.first for span in step] for step in sink.steps] == [[0]]
