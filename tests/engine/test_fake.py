"""The fake runner: its tokens, its KV and its time."""

import ctypes
import math
import os
from collections.abc import Sequence

import pytest
from engine_rig import BLOCK, Recorder, ask, drain, expected, fake_config, greedy, tokens_of
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.engine.api import PENDING, Row, SampleSpec
from splitserve.engine.core import EngineCore
from splitserve.engine.fake import FakeConfig, FakeRunner, fake_tokens
from splitserve.errors import BugError, ConfigError
from splitserve.ids import RequestId
from splitserve.protocol.sampling import SamplingParams

R = RequestId("r")
PROMPTS = st.lists(st.integers(0, 99), min_size=1, max_size=30)


def row(
    tokens: Sequence[int],
    start: int = 0,
    blocks: Sequence[int] = (3, 1, 2, 0),
    params: SamplingParams | None = None,
    **spec: object,
) -> Row:
    sample = SampleSpec(params or greedy(9), **{"position": 0, **spec})  # type: ignore[arg-type]
    return Row(R, tokens, start, blocks, sample)


def run(runner: FakeRunner, *rows: Row) -> list[int]:
    runner.launch(rows, None)
    return [sampled.token_id for sampled in runner.collect()]


# Tokens


@given(PROMPTS)
def test_an_answer_depends_on_every_token_of_the_prompt(prompt: list[int]) -> None:
    config = fake_config(vocab_size=1 << 30)
    answer = fake_tokens(prompt, 3, greedy(3), config)
    for number, token in enumerate(prompt):
        other = [*prompt[:number], token + 1, *prompt[number + 1 :]]
        assert fake_tokens(other, 3, greedy(3), config) != answer
    assert fake_tokens([*prompt, answer[0]], 2, greedy(3), config) == answer[1:]


def test_the_seed_matters_only_when_the_temperature_is_not_zero() -> None:
    def answer(seed: int, temperature: float) -> list[int]:
        params = SamplingParams(seed=seed, max_tokens=8, temperature=temperature)
        return fake_tokens([1, 2, 3], 8, params)

    assert answer(1, 0.0) == answer(2, 0.0)
    assert answer(1, 1.0) != answer(2, 1.0)
    assert answer(1, 1.0) == answer(1, 1.0)


def test_tokens_come_from_the_range_that_was_set() -> None:
    config = fake_config(token_low=40, token_high=45, eos_token_ids=(42,))
    answer = fake_tokens([1], 200, greedy(200), config)
    assert set(answer) == {40, 41, 43, 44}


def test_an_answer_ends_with_eos_at_the_set_position_and_nowhere_else() -> None:
    config = fake_config(eos_after=5)
    assert fake_tokens([1], 50, greedy(50), config)[5:] == [2]
    assert len(fake_tokens([1], 50, greedy(50, min_tokens=9), config)) == 10
    assert len(fake_tokens([1], 50, greedy(50, ignore_eos=True), config)) == 50
    assert len(fake_tokens([1], 50, greedy(50), fake_config())) == 50


def test_a_stop_id_ends_the_answer_but_not_before_min_tokens() -> None:
    config = fake_config(token_low=10, token_high=14)
    free = fake_tokens([1], 40, greedy(40), config)
    stop = free[6]
    short = fake_tokens([1], 40, greedy(40, stop_token_ids=(stop,)), config)
    assert short == free[: free.index(stop) + 1]
    late = fake_tokens([1], 40, greedy(40, stop_token_ids=(stop,), min_tokens=20), config)
    assert stop not in late[:20]


def test_log_probabilities_are_those_of_one_distribution() -> None:
    engine = EngineCore(FakeRunner(config := fake_config()), config.scheduler)
    params = SamplingParams(seed=3, max_tokens=5, temperature=1.0, logprobs=4)
    engine.add(ask("r", [1, 2], sampling=params))
    for output in drain(engine):
        chosen = output.logprob
        assert chosen is not None
        assert chosen.token_id == output.token_id
        assert len(chosen.top) == 4
        values = [logprob for _, logprob in chosen.top]
        assert values == sorted(values, reverse=True)
        assert sum(math.exp(value) for value in values) < 1.0
        assert chosen.logprob <= values[0]
        if chosen.rank <= 4:
            assert chosen.top[chosen.rank - 1] == (chosen.token_id, chosen.logprob)
        else:
            assert chosen.token_id not in [token for token, _ in chosen.top]


def test_greedy_chooses_the_likeliest_and_asks_no_more_alternatives_than_told() -> None:
    engine = EngineCore(FakeRunner(config := fake_config()), config.scheduler)
    engine.add(ask("none", [1, 2], sampling=greedy(3)))
    engine.add(ask("zero", [1, 2], sampling=greedy(3, logprobs=0)))
    for output in drain(engine):
        if output.request_id == "none":
            assert output.logprob is None
        else:
            assert output.logprob is not None
            assert (output.logprob.rank, output.logprob.top) == (1, ())


# KV


@settings(deadline=None)
@given(PROMPTS, st.integers(1, 3), st.integers(1, 2), st.sampled_from([8, 16, 24]))
def test_the_answer_comes_out_of_the_pool_whatever_its_shape(
    prompt: list[int], layers: int, heads: int, head_dim: int
) -> None:
    config = fake_config(num_layers=layers, num_kv_heads=heads, head_dim=head_dim)
    engine = EngineCore(FakeRunner(config), config.scheduler)
    request = ask("r", prompt, 6)
    engine.add(request)
    assert tokens_of(drain(engine), "r") == expected(request, config)
    engine.close()


def test_the_region_is_shared_memory_of_the_layouts_size() -> None:
    runner = FakeRunner(fake_config())
    (region,) = runner.regions()
    layout = runner.describe().layout
    assert region.nbytes == layout.pool_bytes
    assert os.fstat(region.shared_fd).st_size == region.nbytes
    run(runner, row([7], 0, [2]))
    seen = os.pread(region.shared_fd, layout.block_bytes, layout.offset(1, 2))
    assert seen == ctypes.string_at(region.address + layout.offset(1, 2), layout.block_bytes)
    assert any(seen)
    runner.close()
    runner.close()


PLACES = [(layer, half) for layer in range(2) for half in range(2)]


@pytest.mark.parametrize(("layer", "half"), PLACES)
@pytest.mark.parametrize("known", [True, False])
def test_a_changed_byte_of_the_last_position_is_found_in_every_copy(
    layer: int, half: int, known: bool
) -> None:
    runner = FakeRunner(fake_config())
    run(runner, row([5, 6, 7, 8, 9]))
    layout = runner.describe().layout
    address = runner.regions()[0].address + layout.offset(layer, 1) + half * layout.block_bytes // 2
    ctypes.memset(address, 0xAB, 1)
    if not known:
        run(runner, Row(R, [1], 0, [2], None))
    with pytest.raises(BugError, match="request r is wrong in block 1, number 1"):
        run(runner, row([3], 5))


@pytest.mark.parametrize(("layer", "half"), PLACES)
def test_kv_of_others_is_checked_from_the_start(layer: int, half: int) -> None:
    runner = FakeRunner(fake_config())
    run(runner, row([5, 6, 7, 8, 9]))
    layout = runner.describe().layout
    address = runner.regions()[0].address + layout.offset(layer, 3) + half * layout.block_bytes // 2
    ctypes.memset(address, 0xAB, 1)
    other = Row(RequestId("other"), [3], 5, (3, 1), None)
    with pytest.raises(BugError, match="request other is wrong in block 3, number 0"):
        run(runner, other)


def test_swapped_blocks_and_swapped_layers_are_found() -> None:
    runner = FakeRunner(fake_config())
    run(runner, row(list(range(8)), 0, [0, 1]))
    with pytest.raises(BugError):
        run(runner, Row(RequestId("swapped"), [3], 8, [1, 0], None))
    layout = runner.describe().layout
    base = runner.regions()[0].address
    one, other = (ctypes.string_at(base + layout.offset(n, 0), layout.block_bytes) for n in (0, 1))
    assert one != other
    ctypes.memmove(base + layout.offset(0, 0), other, layout.block_bytes)
    ctypes.memmove(base + layout.offset(1, 0), one, layout.block_bytes)
    with pytest.raises(BugError):
        run(runner, Row(RequestId("layers"), [3], 8, [0, 1], None))


def test_memory_that_was_never_written_is_no_kv() -> None:
    runner = FakeRunner(fake_config())
    with pytest.raises(BugError):
        run(runner, row([3], BLOCK))


def test_foreign_kv_that_is_sound_in_itself_gives_other_tokens() -> None:
    config = fake_config(vocab_size=1 << 30)
    runner = FakeRunner(config)
    run(runner, row([1, 2, 3, 4], 0, [0]), Row(RequestId("s"), [9, 9, 9, 9], 0, [1], None))
    right = run(runner, Row(RequestId("a"), [5], 4, [0, 2], SampleSpec(greedy(1), 0)))
    wrong = run(runner, Row(RequestId("b"), [5], 4, [1, 2], SampleSpec(greedy(1), 0)))
    assert right == fake_tokens([1, 2, 3, 4, 5], 1, greedy(1), config)
    assert wrong != right


def test_forgetting_finished_requests_costs_a_check_and_nothing_else() -> None:
    config = fake_config()
    runner = FakeRunner(config)
    run(runner, row([1, 2, 3, 4, 5]))
    for number in range(5000):
        run(runner, Row(RequestId(f"r{number}"), [1], 0, [9], None))
    assert run(runner, row([6], 5)) == fake_tokens([1, 2, 3, 4, 5, 6], 1, greedy(1), config)


def test_a_history_that_differs_from_the_kv_is_found() -> None:
    runner = FakeRunner(fake_config())
    params = greedy(9, presence_penalty=0.5)
    run(runner, row([1, 2], params=params, prompt=[1, 2]))
    run(runner, row([3], 2, params=params, prompt=[1, 2], output=[3], position=1))
    with pytest.raises(BugError, match="history"):
        run(runner, row([4], 3, params=params, prompt=[1, 2], output=[4], position=1))


def test_an_answer_with_no_id_left_to_choose_is_a_bug() -> None:
    runner = FakeRunner(fake_config(token_low=10, token_high=12))
    with pytest.raises(BugError, match="banned"):
        run(runner, row([1], banned=(10, 11)))


# One step ahead


def ahead() -> tuple[FakeRunner, list[list[int]]]:
    """A runner with one launch open, two of whose three rows are sampled; and their answers."""
    config = fake_config(depth=2, vocab_size=1 << 30)
    runner = FakeRunner(config)
    prompts = [[1, 2], [3], [4, 5, 6]]
    specs = [SampleSpec(greedy(3), 0), None, SampleSpec(greedy(3), 0)]
    rows = [
        Row(RequestId(f"r{number}"), tokens, 0, [number], spec)
        for number, (tokens, spec) in enumerate(zip(prompts, specs, strict=True))
    ]
    runner.launch(rows, None)
    return runner, [fake_tokens(prompts[number], 3, greedy(3), config) for number in (0, 2)]


def following(number: int, block: int, start: int, row: int, position: int = 1) -> Row:
    spec = SampleSpec(greedy(3), position)
    return Row(RequestId(f"r{number}"), [PENDING], start, [block], spec, follows=row)


def collected(runner: FakeRunner) -> list[int]:
    return [sampled.token_id for sampled in runner.collect()]


@pytest.mark.parametrize("pushed", [True, False])
def test_a_row_goes_on_with_the_token_that_the_launch_before_chose(pushed: bool) -> None:
    runner, (first, last) = ahead()
    sink = Recorder() if pushed else None
    if sink is not None:
        sink.begin([])
    runner.launch([following(2, 2, 3, 1), following(0, 0, 2, 0)], sink)
    assert collected(runner) == [first[0], last[0]]
    runner.launch([following(0, 0, 3, 1, position=2)], None)
    assert collected(runner) == [last[1], first[1]]
    assert collected(runner) == [first[2]]


def test_a_row_that_follows_anothers_token_goes_on_with_that() -> None:
    runner, (first, last) = ahead()
    runner.launch([following(0, 0, 2, 1)], None)
    assert collected(runner) == [first[0], last[0]]
    assert collected(runner) != [first[1]]


def test_a_launch_is_computed_no_earlier_than_it_must_be() -> None:
    runner, _ = ahead()
    (region,) = runner.regions()
    assert not any(ctypes.string_at(region.address, region.nbytes))
    runner.collect()
    assert any(ctypes.string_at(region.address, region.nbytes))


@pytest.mark.parametrize(
    "row",
    [
        Row(R, [PENDING], 1, [0], None),
        Row(R, [5, PENDING], 1, [0], None),
        Row(R, [PENDING], 1, [0], None, follows=2),
        Row(R, [PENDING], 1, [0], None, follows=-1),
        Row(R, [5], 1, [0], None, follows=0),
    ],
)
def test_a_token_that_nothing_tells_is_a_bug(row: Row) -> None:
    runner, _ = ahead()
    with pytest.raises(BugError, match="nothing tells the token"):
        runner.launch([row], None)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_row_cannot_follow_a_launch_that_is_not_open(depth: int) -> None:
    runner = FakeRunner(fake_config(depth=depth))
    run(runner, row([1, 2]))
    with pytest.raises(BugError, match="nothing tells the token"):
        runner.launch([Row(R, [PENDING], 2, [3], None, follows=0)], None)


def test_more_than_depth_launches_and_collecting_nothing_are_bugs(depth: int) -> None:
    runner = FakeRunner(fake_config(depth=depth))
    with pytest.raises(BugError, match="without launch"):
        runner.collect()
    for number in range(depth):
        runner.launch([Row(RequestId(f"r{number}"), [1], 0, [number], None)], None)
    with pytest.raises(BugError, match=f"with {depth} open"):
        runner.launch([Row(R, [1], 0, [9], None)], None)


def test_a_runner_is_ready_when_collecting_takes_no_time(depth: int) -> None:
    for step_s, ready in ((0.0, True), (1.0, False)):
        runner = FakeRunner(fake_config(depth=depth, step_s=step_s), Sleeper())
        assert runner.ready()
        runner.launch([row([1, 2])], None)
        assert runner.ready() == ready
        runner.collect()
        assert runner.ready()


# Time


class Sleeper:
    def __init__(self) -> None:
        self.slept: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def test_a_step_takes_what_the_cost_model_says() -> None:
    sleep = Sleeper()
    config = fake_config(step_s=1.0, prefill_token_s=0.1, decode_seq_s=0.01)
    engine = EngineCore(FakeRunner(config, sleep), config.scheduler)
    engine.add(ask("a", range(6), 3))
    engine.add(ask("b", range(10, 15), 1))
    drain(engine)
    assert sleep.slept == pytest.approx([1.0 + 0.1 * 11, 1.01, 1.01])


def test_while_kv_is_pushed_the_time_is_spread_over_the_layers() -> None:
    sleep = Sleeper()
    config = fake_config(step_s=1.0, num_layers=4)
    engine = EngineCore(FakeRunner(config, sleep), config.scheduler)
    engine.add(ask("a", range(6), 3), push=True)
    drain(engine, Recorder())
    assert sleep.slept == pytest.approx([0.25] * 4)


def test_a_model_that_costs_nothing_does_not_sleep() -> None:
    sleep = Sleeper()
    config = fake_config()
    engine = EngineCore(FakeRunner(config, sleep), config.scheduler)
    engine.add(ask("a", range(6), 3))
    drain(engine)
    assert sleep.slept == []


# Configuration


@pytest.mark.parametrize(
    "fields",
    [
        {"head_dim": 4},
        {"head_dim": 0},
        {"num_blocks": 0},
        {"block_size": -1},
        {"max_model_len": 1},
        {"token_low": 50, "token_high": 50},
        {"token_low": -1},
        {"token_high": 101},
        {"token_low": 2, "token_high": 3},
        {"depth": 0},
        {"depth": 3},
        {"tensor_parallel_size": 2},
        {"num_kv_heads": 4, "tensor_parallel_size": 3},
        {"tensor_parallel_size": 0},
    ],
)
def test_a_configuration_that_cannot_run_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        FakeRunner(fake_config(**fields))


def test_models_that_answer_differently_have_different_hashes() -> None:
    def content_hash(config: FakeConfig) -> str:
        runner = FakeRunner(config)
        runner.close()
        return runner.describe().content_hash

    base = content_hash(fake_config())
    assert base == content_hash(fake_config(num_blocks=7, step_s=0.1))
    assert base != content_hash(fake_config(token_high=50))
    assert base != content_hash(fake_config(eos_after=4))


# What is allowed


@given(PROMPTS, st.sets(st.integers(0, 99), min_size=1), st.floats(0.0, 2.0))
@settings(max_examples=50, deadline=None)
def test_only_allowed_ids_are_chosen_inside_the_range_where_there_are_any(
    tokens: list[int], ids: set[int], temperature: float
) -> None:
    config = fake_config()
    params = SamplingParams(seed=1, max_tokens=9, temperature=temperature)
    allowed = sum(1 << token for token in ids).to_bytes(13, "little")
    blocks = range(len(tokens) // BLOCK + 1)
    (token,) = run(FakeRunner(config), row(tokens, 0, blocks, params, allowed=allowed))
    usual = {each for each in ids if each >= config.token_low} - {*config.eos_token_ids}
    assert token in (usual or ids)
