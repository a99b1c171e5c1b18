"""EngineCore's promises, one at a time."""

from collections.abc import Sequence
from itertools import count
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
    pusher,
    tokens_of,
)

from splitserve.engine.api import KVSink, PushSpan, Row, Sampled
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.engine.fake import FakeRunner
from splitserve.errors import BugError, CallerError
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.sampling import SamplingParams

H, H2 = HandoffId("r#0"), HandoffId("r#1")
P = WorkerId("prefill-0")
R = RequestId("r")
FAKE = fake_config()


def answer(request: GenerateRequest) -> list[int]:
    return expected(request, FAKE)


def prompt(length: int, first: int = 0) -> list[int]:
    return [first, *(number % 90 for number in range(1, length))]


# Answers


@pytest.mark.parametrize("length", [1, 3, 4, 5, 15, 16, 17, 53])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_an_answer_does_not_depend_on_chunks_or_company(
    length: int, temperature: float, depth: int
) -> None:
    engine = make_engine(depth=depth, num_blocks=64)
    params = SamplingParams(seed=5, max_tokens=9, temperature=temperature)
    request = ask("r", prompt(length), sampling=params)
    others = [ask(f"other{number}", prompt(7 * number + 1, number + 1), 6) for number in range(4)]
    for each in [*others[:2], request, *others[2:]]:
        engine.add(each)
    outputs = drain(engine)
    for each in [request, *others]:
        assert tokens_of(outputs, each.request_id) == answer(each)
    assert engine.counts().idle


def test_only_the_last_output_has_a_finish_reason_and_only_the_first_says_what_was_cached(
    depth: int,
) -> None:
    engine = make_engine(depth=depth)
    engine.add(ask("a", prompt(9), 1))
    drain(engine)
    engine.add(ask("r", prompt(9), 3))
    outputs = drain(engine)
    assert [output.finish_reason for output in outputs] == [None, None, "length"]
    assert [output.cached_tokens for output in outputs] == [8, None, None]
    assert [output.handed_off for output in outputs] == [False] * 3


@pytest.mark.parametrize(
    ("fields", "count", "finish", "stop_reason"),
    [
        ({}, 4, "stop", None),
        ({"min_tokens": 6}, 7, "stop", None),
        ({"ignore_eos": True}, 20, "length", None),
        ({"stop_token_ids": (2,)}, 4, "stop", None),
        ({"max_tokens": 3}, 3, "length", None),
        ({"max_tokens": 4}, 4, "stop", None),
    ],
)
def test_end_of_sequence_ends_an_answer(
    fields: dict[str, Any], count: int, finish: str, stop_reason: int | None, depth: int
) -> None:
    engine = make_engine(depth=depth, eos_after=3)
    engine.add(ask("r", prompt(5), sampling=greedy(**{"max_tokens": 20, **fields})))
    outputs = drain(engine)
    assert len(outputs) == count
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == (finish, stop_reason)


@pytest.mark.parametrize("ignore_eos", [True, False])
def test_a_stop_token_ends_an_answer_and_is_named(ignore_eos: bool, depth: int) -> None:
    free = answer(ask("r", prompt(5), 20))
    stop = free[6]
    params = greedy(20, stop_token_ids=(1, stop), ignore_eos=ignore_eos)
    engine = make_engine(depth=depth)
    engine.add(ask("r", prompt(5), sampling=params))
    outputs = drain(engine)
    assert tokens_of(outputs, "r") == free[: free.index(stop) + 1]
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", stop)


def test_an_answer_ends_at_the_models_length(depth: int) -> None:
    engine = make_engine(depth=depth, max_model_len=12)
    engine.add(ask("r", prompt(8), 1000))
    outputs = drain(engine)
    assert len(outputs) == 4
    assert outputs[-1].finish_reason == "length"


@pytest.mark.parametrize("emitted", [1, 3, 8])
@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_a_replay_goes_on_at_the_next_output_position(
    emitted: int, penalty: float, depth: int
) -> None:
    params = SamplingParams(
        seed=9, max_tokens=9, temperature=1.0, presence_penalty=penalty, min_tokens=9
    )
    request = ask("r", prompt(6), sampling=params)
    whole = answer(request)
    engine = make_engine(depth=depth)
    engine.add(request, emitted=whole[:emitted])
    outputs = drain(engine)
    assert outputs[0].index == emitted
    assert tokens_of(outputs, "r") == whole[emitted:]


def test_tenants_do_not_share_a_cache(depth: int) -> None:
    engine = make_engine(depth=depth)
    for salt in ("", "x", "xy", "x"):
        engine.add(ask("r", prompt(9), 1, salt=salt))
        drain(engine)
    stats = engine.stats()
    assert (stats.prefix_hit_tokens, stats.prefix_query_tokens) == (8, 36)


def test_two_sequences_that_need_seven_of_ten_blocks_both_answer_rightly(depth: int) -> None:
    engine = make_engine(depth=depth, num_blocks=10)
    requests = [ask("a", prompt(14, 1), 12), ask("b", prompt(13, 2), 12)]
    for request in requests:
        engine.add(request)
    outputs = drain(engine)
    for request in requests:
        assert tokens_of(outputs, request.request_id) == answer(request)
    assert engine.stats().preemptions > 0
    assert engine.counts().idle


# Refusals


def refused(engine: EngineCore, request: GenerateRequest, **how: Any) -> CallerError:
    with pytest.raises(CallerError) as caught:
        engine.add(request, **how)
    assert not engine.has_work()
    assert engine.counts().idle
    return caught.value


def test_a_prompt_that_leaves_no_room_for_an_answer_is_refused(depth: int) -> None:
    engine = make_engine(depth=depth, num_blocks=128)
    error = refused(engine, ask("r", prompt(256), 1))
    assert (error.status, error.param, error.code) == (400, "prompt", "context_length_exceeded")
    engine.add(ask("r", prompt(255), 1000))
    assert [output.finish_reason for output in drain(engine)] == ["length"]


def test_what_can_never_fit_into_the_pool_is_refused_with_its_sizes(depth: int) -> None:
    engine = make_engine(depth=depth, num_blocks=4)
    error = refused(engine, ask("r", prompt(17), 1))
    assert (error.status, error.param) == (400, "prompt")
    assert "17 tokens" in error.message
    assert "holds 16" in error.message
    error = refused(engine, ask("r", prompt(10), 8))
    assert (error.status, error.param) == (400, "max_tokens")
    assert "max_model_len 256" in error.message
    request = ask("r", prompt(10), 7)
    engine.add(request)
    assert tokens_of(drain(engine), "r") == answer(request)
    with pytest.raises(CallerError):
        engine.reserve(H, ask("r", prompt(10), 8), P)


def test_a_push_needs_room_for_its_prompt_only(depth: int) -> None:
    engine = make_engine(depth=depth, num_blocks=4)
    engine.add(ask("r", prompt(16), 100), push=True)
    assert len(drain(engine)) == 1
    assert engine.counts().exported == 4


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (ask("r", []), "prompt"),
        (ask("r", [1, 100]), "prompt"),
        (ask("r", [-1]), "prompt"),
        (ask("r", [1 << 70]), "prompt"),
        (ask("r", [1], 0), "max_tokens"),
        (ask("r", [1], -5), "max_tokens"),
        (ask("r", [1], sampling=greedy(3, stop_token_ids=(100,))), "stop_token_ids"),
        (ask("r", [1], sampling=greedy(3, logit_bias={-1: 2.0})), "logit_bias"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    request_: GenerateRequest, param: str, depth: int
) -> None:
    engine = make_engine(depth=depth)
    error = refused(engine, request_)
    assert (error.status, error.param) == (400, param)
    with pytest.raises(CallerError):
        engine.reserve(H, request_, P)


def test_a_replay_with_nothing_left_to_generate_is_refused(depth: int) -> None:
    engine = make_engine(depth=depth, max_model_len=12)
    assert refused(engine, ask("r", [1], 3), emitted=[5, 5, 5]).param == "max_tokens"
    assert refused(engine, ask("r", prompt(9), 9), emitted=[5, 5, 5]).param == "max_tokens"
    assert refused(engine, ask("r", [1], 9), emitted=[100]).param == "prompt"


def test_a_request_id_is_in_use_until_it_ends(depth: int) -> None:
    engine = make_engine(depth=depth)
    engine.add(ask("r", [1, 2]))
    with pytest.raises(CallerError) as caught:
        engine.add(ask("r", [3, 4]))
    assert (caught.value.status, caught.value.param) == (409, "request_id")
    assert tokens_of(drain(engine), "r") == answer(ask("r", [1, 2]))
    engine.add(ask("r", [3, 4]))
    assert tokens_of(drain(engine), "r") == answer(ask("r", [3, 4]))


def test_a_pushed_request_id_is_in_use_for_pushes_until_its_release(depth: int) -> None:
    engine = make_engine(depth=depth)
    engine.add(ask("r", [1, 2]), push=True)
    drain(engine)
    with pytest.raises(CallerError):
        engine.add(ask("r", [1, 2]), push=True)
    engine.release(R)
    engine.add(ask("r", [1, 2]), push=True)
    drain(engine)
    engine.release(R)
    assert engine.counts().idle


def test_describe_lowers_the_length_to_what_the_pool_holds(depth: int) -> None:
    assert make_engine(depth=depth, num_blocks=16).describe().max_model_len == 64
    assert make_engine(depth=depth, num_blocks=500).describe().max_model_len == 256


# Push


@pytest.mark.parametrize("length", [1, 4, 15, 16, 17, 53])
def test_a_push_tells_each_block_once_and_in_order_before_it_is_written(
    length: int, depth: int
) -> None:
    engine = make_engine(depth=depth, num_blocks=32)
    request = ask("r", prompt(length), 9)
    engine.add(request, push=True)
    sink = Recorder()
    (output,) = drain(engine, sink)
    spans = [span for step in sink.steps for span in step]
    numbers = [span.first + place for span in spans for place in range(len(span.blocks))]
    assert numbers == list(range(-(-length // BLOCK)))
    assert len({block for span in spans for block in span.blocks}) == len(numbers)
    assert sink.layers == [[0, 1]] * len(sink.steps)
    assert (output.token_id, output.index) == (answer(request)[0], 0)
    assert (output.handed_off, output.finish_reason) == (True, None)


def test_the_first_span_has_the_cached_prefix_too(depth: int) -> None:
    engine = make_engine(depth=depth)
    engine.add(ask("a", prompt(12), 1))
    drain(engine)
    engine.add(ask("r", [*prompt(11), 80, 81, 82]), push=True)
    sink = Recorder()
    (output,) = drain(engine, sink)
    assert output.cached_tokens == 8
    ((span,),) = sink.steps
    assert (span.first, len(span.blocks)) == (0, 4)


def test_a_sink_hears_nothing_of_steps_without_pushes(depth: int) -> None:
    engine = make_engine(depth=depth)
    engine.add(ask("r", prompt(9), 3))
    sink = Recorder()
    drain(engine, sink)
    assert sink.steps == []


def test_pushes_and_others_share_a_step_and_only_pushes_are_told(depth: int) -> None:
    engine = make_engine(depth=depth)
    engine.add(ask("stays", prompt(5, 1), 5))
    engine.add(ask("r", prompt(5), 5), push=True)
    sink = Recorder()
    outputs = drain(engine, sink)
    assert [[span.request_id for span in step] for step in sink.steps] == [["r"]]
    assert tokens_of(outputs, "stays") == answer(ask("stays", prompt(5, 1), 5))


def test_pushed_blocks_stay_untouched_until_release(depth: int) -> None:
    engine = make_engine(depth=depth, num_blocks=8)
    engine.add(ask("r", prompt(16), 9), push=True)
    drain(engine)
    assert engine.counts().exported == 4
    other = ask("other", prompt(14, 1), 2)
    engine.add(other)
    engine.add(ask("late", prompt(14, 2), 2))
    outputs = drain(engine)
    assert tokens_of(outputs, "other") == answer(other)
    assert engine.counts().exported == 4
    engine.release(R)
    engine.release(R)
    assert engine.counts().idle


@pytest.mark.parametrize("how", [{"max_tokens": 1}, {"stop": True}])
def test_a_push_whose_first_token_ends_the_answer_is_not_handed_off(
    how: dict[str, Any], depth: int
) -> None:
    first = answer(ask("r", prompt(6), 1))[0]
    params = greedy(1) if "max_tokens" in how else greedy(9, stop_token_ids=(first,))
    engine = make_engine(depth=depth)
    engine.add(ask("r", prompt(6), sampling=params), push=True)
    (output,) = drain(engine, Recorder())
    assert not output.handed_off
    assert output.finish_reason == ("length" if "max_tokens" in how else "stop")
    assert engine.counts().exported == 2
    engine.release(R)
    assert engine.counts().idle


def test_a_preempted_neighbour_does_not_disturb_a_push(depth: int) -> None:
    """A handoff never lacks a block of its prompt, however full the pool is."""
    source, target = make_engine(depth=depth, num_blocks=9), make_engine(depth=depth)
    others = [ask(f"o{number}", prompt(4, number), 9) for number in (1, 2)]
    for other in others:
        source.add(other)
    for _ in range(4):
        source.step()
    request = ask("r", prompt(14), 5)
    reservation = target.reserve(H, request, P)
    assert reservation is not None
    source.add(request, push=True)
    outputs = drain(source, pusher(source, target, reservation))
    source.release(R)
    (first,) = tokens_of(outputs, "r")
    assert target.activate(H, reservation.epoch, first)
    assert [first, *tokens_of(drain(target), "r")] == answer(request)


# Handoff


@pytest.mark.parametrize("length", [1, 3, 4, 5, 15, 16, 17, 53])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_split_answer_equals_the_unsplit_one(length: int, temperature: float, depth: int) -> None:
    source, target = (
        make_engine(depth=depth, num_blocks=32),
        make_engine(depth=depth, num_blocks=32),
    )
    params = SamplingParams(
        seed=5, max_tokens=9, temperature=temperature, frequency_penalty=temperature
    )
    request = ask("r", prompt(length), sampling=params)
    reservation = target.reserve(H, request, P)
    assert reservation is not None
    assert not target.has_work()
    first = prefill_into(source, target, request, reservation)
    assert target.activate(H, reservation.epoch, first.token_id)
    outputs = drain(target)
    assert outputs[0].index == 1
    assert outputs[0].cached_tokens is None
    assert [first.token_id, *tokens_of(outputs, "r")] == answer(request)
    assert source.counts().idle
    assert target.counts().idle


def test_a_grant_covers_the_prompt_and_room_for_the_first_step(depth: int) -> None:
    engine = make_engine(depth=depth)
    for length, told, granted in ((7, 2, 2), (8, 2, 3), (9, 3, 3)):
        reservation = engine.reserve(H, ask("r", prompt(length), 9), P)
        assert reservation is not None
        assert (reservation.skip_blocks, len(reservation.blocks)) == (0, told)
        assert engine.counts().granted == granted
        engine.cancel(H)
        engine.fence(H, reservation.epoch)
    reservation = engine.reserve(H, ask("r", prompt(64), 1), P)
    assert reservation is not None
    assert engine.counts().granted == 16


@pytest.mark.parametrize(("length", "full", "partial"), [(1024, 256, 0), (1030, 257, 1)])
def test_a_second_identical_prompt_needs_no_full_block_again(
    length: int, full: int, partial: int, depth: int
) -> None:
    config = fake_config(num_blocks=600, max_model_len=2048, depth=depth)
    source, target = (EngineCore(FakeRunner(config), config.scheduler) for _ in range(2))
    moved = []
    for name in ("one", "two"):
        request = ask(name, prompt(length), 5)
        reservation = target.reserve(HandoffId(name), request, P)
        assert reservation is not None
        moved.append((reservation.skip_blocks, len(reservation.blocks), reservation.cached_tokens))
        first = prefill_into(source, target, request, reservation)
        assert target.activate(HandoffId(name), reservation.epoch, first.token_id)
        outputs = drain(target)
        assert [first.token_id, *tokens_of(outputs, name)] == expected(request, config)
    assert moved == [(0, full + partial, 0), (full, partial, full * BLOCK)]


def test_a_prompt_that_arrived_can_be_shared_at_once(depth: int) -> None:
    source, target = make_engine(depth=depth), make_engine(depth=depth)
    request = ask("r", prompt(9), 5)
    reservation = target.reserve(H, request, P)
    assert reservation is not None
    first = prefill_into(source, target, request, reservation)
    target.activate(H, reservation.epoch, first.token_id)
    second = target.reserve(H2, ask("s", prompt(9), 5), P)
    assert second is not None
    assert (second.skip_blocks, second.cached_tokens) == (2, 8)


def test_a_first_token_that_may_not_end_the_answer_yet_does_not(depth: int) -> None:
    source, target = make_engine(depth=depth), make_engine(depth=depth)
    request = ask("r", prompt(9), sampling=greedy(5, min_tokens=2))
    reservation = target.reserve(H, request, P)
    assert reservation is not None
    prefill_into(source, target, request, reservation)
    assert target.activate(H, reservation.epoch, 2)
    assert [output.index for output in drain(target)] == [1, 2, 3, 4]


def test_a_looked_up_prefix_is_pinned_no_longer_than_its_grant(depth: int) -> None:
    engine = make_engine(depth=depth, num_blocks=8)
    engine.add(ask("a", prompt(16), 1))
    drain(engine)
    for attempt in range(5):
        handoff = HandoffId(f"r#{attempt}")
        reservation = engine.reserve(handoff, ask("r", prompt(16), 4), P)
        assert reservation is not None
        assert reservation.skip_blocks == 4
        assert engine.counts().held == 4
        engine.cancel(handoff)
        engine.fence(handoff, reservation.epoch)
        assert engine.counts().idle
    engine.add(ask("fresh", prompt(32, 1), 1))
    drain(engine)
    assert engine.reserve(H, ask("r", prompt(16), 4), P) is not None
    assert engine.counts().held == 0


def test_a_repeated_reserve_is_answered_alike_and_holds_nothing_more(depth: int) -> None:
    engine = make_engine(depth=depth)
    request = ask("r", prompt(9), 4)
    reservation = engine.reserve(H, request, P)
    counts = engine.counts()
    assert engine.reserve(H, request, P) == reservation
    assert engine.counts() == counts
    with pytest.raises(CallerError) as caught:
        engine.reserve(H, ask("other", prompt(9), 4), P)
    assert caught.value.param == "handoff"


def test_reserve_says_no_when_there_is_no_room_or_no_place(depth: int) -> None:
    engine = make_engine(depth=depth, num_blocks=8)
    assert engine.reserve(H, ask("a", prompt(16), 4), P) is not None
    assert engine.reserve(H2, ask("b", prompt(16, 1), 4), P) is None
    assert engine.reserve(H2, ask("b", prompt(4, 1), 4), P) is not None
    few = make_engine(
        depth=depth, scheduler=SchedulerConfig(max_num_seqs=2, max_num_batched_tokens=16)
    )
    few.add(ask("a", prompt(3), 9))
    assert few.reserve(H, ask("b", prompt(3), 4), P) is not None
    assert few.reserve(H2, ask("c", prompt(3), 4), P) is None
    few.abort(RequestId("a"))
    assert few.reserve(H2, ask("c", prompt(3), 4), P) is not None


def test_an_activated_sequence_that_is_preempted_is_computed_here(depth: int) -> None:
    source, target = make_engine(depth=depth), make_engine(depth=depth, num_blocks=8)
    target.add(ask("first", prompt(4, 1), 20))
    outputs = target.step()
    request = ask("r", prompt(10), 16)
    reservation = target.reserve(H, request, P)
    assert reservation is not None
    first = prefill_into(source, target, request, reservation)
    assert target.activate(H, reservation.epoch, first.token_id)
    outputs += drain(target)
    assert target.stats().preemptions > 0
    assert [first.token_id, *tokens_of(outputs, "r")] == answer(request)
    assert tokens_of(outputs, "first") == answer(ask("first", prompt(4, 1), 20))


def test_late_doubled_and_foreign_messages_have_no_effect(depth: int) -> None:
    source, target = make_engine(depth=depth), make_engine(depth=depth)
    request = ask("r", prompt(9), 6)
    reservation = target.reserve(H, request, P)
    assert reservation is not None
    epoch = reservation.epoch
    first = prefill_into(source, target, request, reservation).token_id
    before = target.counts()
    assert not target.activate(H, epoch + 1, first)
    assert not target.activate(H2, epoch, first)
    assert not target.activate(H, epoch, -1)
    assert not target.activate(H, epoch, 100)
    target.fence(H, epoch + 1)
    target.fence(H2, epoch)
    assert target.cancel(H2) is None
    assert target.writer_gone(WorkerId("nobody")) == []
    target.abort(R)
    target.release(R)
    assert target.counts() == before
    assert target.activate(H, epoch, first)
    assert not target.activate(H, epoch, first)
    assert target.cancel(H) is None
    target.fence(H, epoch)
    assert target.writer_gone(P) == []
    assert [first, *tokens_of(drain(target), "r")] == answer(request)
    assert not target.activate(H, epoch, first)
    assert target.counts().idle


def test_a_second_attempt_is_not_touched_by_messages_to_the_first(depth: int) -> None:
    source, target = make_engine(depth=depth), make_engine(depth=depth)
    request = ask("r", prompt(9), 6)
    old = target.reserve(H, request, P)
    assert old is not None
    assert target.cancel(H) == old.epoch
    new = target.reserve(H, request, P)
    assert new is not None
    assert new.epoch != old.epoch
    assert not set(new.blocks) & set(old.blocks)
    first = prefill_into(source, target, request, new).token_id
    prefill_into(source, target, replace_prompt(request, 50), old)
    assert not target.activate(H, old.epoch, first)
    target.fence(H, old.epoch)
    assert target.counts().quarantined == 0
    assert target.counts().granted > 0
    assert target.activate(H, new.epoch, first)
    assert [first, *tokens_of(drain(target), "r")] == answer(request)


def replace_prompt(request: GenerateRequest, first: int) -> GenerateRequest:
    return ask(request.request_id, prompt(len(request.token_ids), first))


@pytest.mark.parametrize("steps", [0, 1])
def test_an_abort_after_the_kv_arrived_frees_all(steps: int, depth: int) -> None:
    source, target = make_engine(depth=depth), make_engine(depth=depth)
    request = ask("r", prompt(9), 6)
    reservation = target.reserve(H, request, P)
    assert reservation is not None
    first = prefill_into(source, target, request, reservation)
    target.activate(H, reservation.epoch, first.token_id)
    for _ in range(steps):
        target.step()
    target.abort(R)
    assert target.has_work() == (depth == 2 and steps > 0)
    assert drain(target) == []
    assert target.counts().idle


def test_a_fence_before_the_cancel_frees_at_the_cancel(depth: int) -> None:
    engine = make_engine(depth=depth)
    reservation = engine.reserve(H, ask("r", prompt(9), 6), P)
    assert reservation is not None
    engine.fence(H, reservation.epoch)
    assert not engine.activate(H, reservation.epoch, 5)
    assert engine.cancel(H) == reservation.epoch
    assert engine.counts().idle


def test_a_dead_writers_grants_end_and_are_named(depth: int) -> None:
    engine = make_engine(depth=depth)
    for handoff, name in ((H, "a"), (H2, "b")):
        assert engine.reserve(handoff, ask(name, prompt(5, ord(name)), 6), P) is not None
    engine.cancel(H2)
    assert engine.writer_gone(P) == [H]
    assert engine.counts().idle
    assert engine.writer_gone(P) == []
    assert engine.cancel(H) is None


@pytest.mark.parametrize("params", [greedy(1), greedy(9, stop_token_ids=(7,))])
def test_kv_for_an_answer_that_is_over_is_dropped(params: SamplingParams, depth: int) -> None:
    engine = make_engine(depth=depth)
    reservation = engine.reserve(H, ask("r", prompt(5), sampling=params), P)
    assert reservation is not None
    assert not engine.activate(H, reservation.epoch, 7)
    assert engine.counts().idle
    assert not engine.has_work()


def test_kv_for_a_request_that_runs_by_another_way_is_dropped(depth: int) -> None:
    source, target = make_engine(depth=depth), make_engine(depth=depth)
    request = ask("r", prompt(9), 6)
    reservation = target.reserve(H, request, P)
    assert reservation is not None
    first = prefill_into(source, target, request, reservation)
    target.add(request)
    assert not target.activate(H, reservation.epoch, first.token_id)
    assert target.counts().granted == 0
    assert tokens_of(drain(target), "r") == answer(request)
    assert target.counts().idle


# Abort


@pytest.mark.parametrize("push", [False, True])
@pytest.mark.parametrize("steps", range(8))
def test_an_abort_between_any_two_steps_leaves_nothing(steps: int, push: bool, depth: int) -> None:
    engine = make_engine(depth=depth, num_blocks=32)
    engine.add(ask("r", prompt(53), 5), push=push)
    seen = []
    for _ in range(steps):
        seen += engine.step(Recorder())
    engine.abort(R)
    engine.abort(R)
    assert depth == 2 or not engine.has_work()
    assert drain(engine) == []
    assert engine.counts().idle
    assert engine.step() == []
    assert len(seen) == min(max(0, steps - 2 - depth), 1 if push else 4)


def test_an_abort_of_a_preempted_sequence_is_final(depth: int) -> None:
    engine = make_engine(depth=depth, num_blocks=6)
    requests = [ask("a", prompt(8, 1), 12), ask("b", prompt(7, 2), 12)]
    for request in requests:
        engine.add(request)
    outputs = []
    while not engine.stats().preemptions:
        outputs += engine.step()
    engine.abort(RequestId("b"))
    outputs += drain(engine)
    assert tokens_of(outputs, "a") == answer(requests[0])
    assert len(tokens_of(outputs, "b")) < 12
    assert engine.counts().idle


def test_a_thousand_aborted_and_cancelled_requests_leave_an_empty_ledger(depth: int) -> None:
    engine = make_engine(depth=depth, num_blocks=12)
    for number in range(1000):
        request = ask("r", prompt(9 + number % 7, number % 5), 6)
        reservation = engine.reserve(H, request, P)
        assert reservation is not None
        engine.add(request, push=number % 2 == 0)
        for _ in range(number % 4):
            engine.step()
        engine.abort(R)
        engine.cancel(H)
        engine.fence(H, reservation.epoch)
        assert drain(engine) == []
        assert engine.counts().idle


# Failing runners


class Interrupted:
    """A sink that fails at the last layer."""

    def __init__(self, sink: KVSink | None) -> None:
        self._sink = sink

    def begin(self, spans: Sequence[PushSpan]) -> None:
        raise AssertionError("a runner does not begin")

    def on_layer(self, layer: int) -> None:
        if self._sink is not None:
            self._sink.on_layer(layer)
        if layer == FAKE.num_layers - 1:
            raise OSError("launch")


class Faulty(FakeRunner):
    """Raises where and as often as told, or loses a sample."""

    fail = ""

    def _is_due(self, where: str) -> bool:
        due = self.fail == where
        if due:
            self.fail = ""
        return due

    def launch(self, rows: Sequence[Row], sink: KVSink | None) -> None:
        if self._is_due("before"):
            raise OSError("before")
        super().launch(rows, Interrupted(sink) if self._is_due("launch") else sink)

    def collect(self) -> list[Sampled]:
        sampled = super().collect()
        if self._is_due("collect"):
            raise OSError("collect")
        return sampled[1:] if sampled and self._is_due("lose") else sampled


@pytest.mark.parametrize("where", ["before", "launch", "collect", "lose"])
def test_after_an_exception_from_the_runner_the_same_work_is_done_again(
    where: str, depth: int
) -> None:
    config = fake_config(depth=depth)
    runner = Faulty(config)
    engine = EngineCore(runner, config.scheduler)
    requests = [ask("a", prompt(14, 1), 8), ask("b", prompt(13, 2), 8)]
    for request in requests:
        engine.add(request)
    engine.add(ask("push", prompt(9, 3), 8), push=True)
    outputs = []
    failed = 0
    sink = Recorder()
    for number in count():
        if not engine.has_work():
            break
        # A failed collect costs as many steps as are open: in between, something has to get on.
        runner.fail = where if number % (2 * depth - 1) == 0 else ""
        try:
            outputs += engine.step(sink)
        except (OSError, BugError):
            failed += 1
            assert engine.counts().total == config.num_blocks
            outputs += engine.step(sink)
    assert failed > 2
    for request in requests:
        assert tokens_of(outputs, request.request_id) == answer(request)
    assert tokens_of(outputs, "push") == answer(ask("push", prompt(9, 3), 8))[:1]
    engine.abort(RequestId("push"))
    assert engine.counts().idle


def test_an_exception_from_the_sink_reaches_the_caller(depth: int) -> None:
    class Broken(Recorder):
        def begin(self, spans: Sequence[PushSpan]) -> None:
            raise OSError("link")

    engine = make_engine(depth=depth)
    engine.add(ask("r", prompt(9), 8), push=True)
    with pytest.raises(OSError, match="link"):
        engine.step(Broken())
    sink = Recorder()
    (output,) = drain(engine, sink)
    assert output.token_id == answer(ask("r", prompt(9), 8))[0]
    assert [span.first for span in sink.steps[0]] == [0]


# Readings


def test_stats_count_what_happened() -> None:
    engine = make_engine()
    engine.add(ask("a", prompt(20), 3))
    engine.add(ask("b", prompt(7, 1), 3))
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.waiting_tokens, stats.steps) == (0, 2, 27, 0)
    engine.step()
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.waiting_tokens, stats.steps) == (1, 1, 11, 1)
    drain(engine)
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.waiting_tokens) == (0, 0, 0)
    assert stats.steps == 4
    assert engine.step() == []
    assert engine.stats().steps == 4


def test_a_step_that_is_open_counts_once_it_is_collected() -> None:
    engine = make_engine(depth=2)
    engine.add(ask("a", prompt(20), 3))
    assert engine.step() == []
    stats = engine.stats()
    assert (stats.running, stats.waiting_tokens, stats.steps) == (1, 4, 0)
    assert engine.step() == []
    stats = engine.stats()
    assert (stats.running, stats.waiting_tokens, stats.steps) == (1, 0, 1)
    drain(engine)
    assert engine.stats().steps == 4
