"""What an engine tells of a sequence's first token: how long it waited, and what it took."""

from collections.abc import Sequence

from engine_rig import ask, fake_config, make_engine, prefill_into

from splitserve.engine.api import FirstToken, KVSink, Row
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.engine.fake import FakeConfig, FakeRunner
from splitserve.ids import HandoffId, WorkerId

STEP_S = 10.0


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class _Slow(FakeRunner):
    """Every step takes STEP_S of the clock."""

    def __init__(self, config: FakeConfig, clock: _Clock) -> None:
        super().__init__(config)
        self._played = clock

    def launch(self, rows: Sequence[Row], sink: KVSink | None) -> None:
        super().launch(rows, sink)
        self._played.now += STEP_S


def slow_engine(**fields: object) -> tuple[EngineCore, _Clock]:
    clock, config = _Clock(), fake_config(**fields)
    return EngineCore(_Slow(config, clock), config.scheduler, clock), clock


def firsts(engine: EngineCore) -> dict[str, list[FirstToken | None]]:
    found: dict[str, list[FirstToken | None]] = {}
    while engine.has_work():
        for output in engine.step():
            found.setdefault(output.request_id, []).append(output.first)
    return found


def test_a_first_token_tells_its_wait_and_its_steps_and_no_other_does() -> None:
    engine, clock = slow_engine()
    engine.add(ask("r", range(10, 40), 3))
    clock.now += 5.0
    told = firsts(engine)["r"]
    assert told == [FirstToken(0, 5.0, 2 * STEP_S), None, None]


def test_what_waits_for_its_turn_is_queued_until_then() -> None:
    engine, _ = slow_engine(scheduler=SchedulerConfig(max_num_seqs=1, max_num_batched_tokens=16))
    engine.add(ask("a", range(10, 20), 2))
    engine.add(ask("b", range(20, 30), 2))
    told = firsts(engine)
    assert told["b"] == [FirstToken(0, 2 * STEP_S, STEP_S), None]


def test_after_a_grant_the_wait_ends_when_the_kv_is_there() -> None:
    source, (engine, clock) = make_engine(), slow_engine()
    request, handoff = ask("r", range(10, 20), 3), HandoffId("h")
    reservation = engine.reserve(handoff, request, WorkerId("w"))
    assert reservation is not None
    first = prefill_into(source, engine, request, reservation)
    clock.now += 7.0
    assert engine.activate(handoff, reservation.epoch, first.token_id)
    clock.now += 1.0
    assert firsts(engine)["r"] == [FirstToken(None, 7.0, 1.0 + STEP_S), None]
