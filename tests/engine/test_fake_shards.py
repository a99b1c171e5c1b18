"""The fake runner with several pools: the same answers, the same bytes, and nothing goes unseen."""

import ctypes
from itertools import product

import pytest
from engine_rig import BLOCK, ask, drain, expected, fake_config, make_engine, tokens_of

from splitserve.engine.api import Row
from splitserve.engine.fake import FakeRunner
from splitserve.errors import BugError
from splitserve.ids import RequestId
from splitserve.protocol.memory import KVLayout

R = RequestId("r")
HEADS = 4


def open_runner(shards: int) -> FakeRunner:
    return FakeRunner(fake_config(num_kv_heads=HEADS, tensor_parallel_size=shards))


def run(runner: FakeRunner, *rows: Row) -> None:
    runner.launch(rows, None)
    runner.collect()


def pools(runner: FakeRunner) -> list[tuple[int, KVLayout]]:
    """Address and layout of each."""
    regions = runner.regions()
    shards = runner.describe().layout.shards(len(regions))
    return [(region.address, shard) for region, shard in zip(regions, shards, strict=True)]


def block_address(runner: FakeRunner, shard: int, layer: int, block: int) -> int:
    base, layout = pools(runner)[shard]
    return base + layout.offset(layer, block)


@pytest.mark.parametrize("shards", [1, 2, HEADS])
def test_an_answer_is_the_same_whatever_the_number_of_shards(shards: int, depth: int) -> None:
    fields = {"num_kv_heads": HEADS, "tensor_parallel_size": shards, "depth": depth}
    engine = make_engine(**fields, num_blocks=9)
    requests = [ask(f"r{number}", range(10, 16 + number), 20) for number in range(3)]
    for request in requests:
        engine.add(request)
    outputs = drain(engine)
    assert engine.stats().preemptions > 0
    for request in requests:
        answer = tokens_of(outputs, request.request_id)
        assert answer == expected(request, fake_config(**fields))
    engine.close()


def test_what_it_says_of_the_model_does_not_depend_on_the_shards() -> None:
    assert open_runner(2).describe() == open_runner(1).describe()


def test_each_pool_holds_the_bytes_of_its_heads_in_the_one_pool() -> None:
    sharded, whole = open_runner(2), open_runner(1)
    rows = [Row(R, [5, 6, 7, 8, 9], 0, (3, 1), None), Row(RequestId("s"), [4], 0, (0,), None)]
    for runner in (sharded, whole):
        run(runner, *rows)
    layout = whole.describe().layout
    head_bytes = layout.block_bytes // (2 * HEADS)
    for shard, (_, part) in enumerate(pools(sharded)):
        nbytes = part.num_kv_heads * head_bytes
        for layer, block, half in product(range(layout.num_layers), (0, 1, 3), range(2)):
            mine = block_address(sharded, shard, layer, block) + half * nbytes
            first = (half * HEADS + part.first_kv_head) * head_bytes
            theirs = block_address(whole, 0, layer, block) + first
            found = ctypes.string_at(mine, nbytes)
            assert any(found)
            assert found == ctypes.string_at(theirs, nbytes)


PLACES = list(product(range(2), range(2), range(2), range(2)))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("shard", "layer", "half", "head"), PLACES)
def test_a_changed_byte_in_any_pool_is_found(
    shard: int, layer: int, half: int, head: int, known: bool
) -> None:
    runner = open_runner(2)
    run(runner, Row(R, [5, 6, 7, 8, 9], 0, (3, 1), None))
    size = runner.describe().layout.block_bytes // (2 * HEADS)
    address = block_address(runner, shard, layer, 1) + (2 * half + head) * size
    ctypes.memset(address, 0xAB, 1)
    request = R if known else RequestId("other")
    with pytest.raises(BugError, match=f"request {request} is wrong in block 1, number 1"):
        run(runner, Row(request, [3], 5, (3, 1), None))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("shard", [0, 1])
def test_a_foreign_block_that_is_sound_in_itself_is_found_in_one_pool(
    shard: int, known: bool
) -> None:
    runner = open_runner(2)
    run(
        runner,
        Row(R, [5, 6, 7, 8], 0, (0,), None),
        Row(RequestId("foreign"), [9, 9, 9, 9], 0, (1,), None),
    )
    layout = pools(runner)[shard][1]
    for layer in range(layout.num_layers):
        own, foreign = (block_address(runner, shard, layer, block) for block in (0, 1))
        ctypes.memmove(own, foreign, layout.block_bytes)
    with pytest.raises(BugError, match="wrong in block 0, number 0"):
        run(runner, Row(R if known else RequestId("other"), [3], BLOCK, (0, 2), None))


def test_pools_that_changed_places_are_found() -> None:
    runner = open_runner(2)
    run(runner, Row(R, [5, 6, 7, 8], 0, (0,), None))
    (first, layout), (second, _) = pools(runner)
    one, other = (ctypes.string_at(base, layout.pool_bytes) for base in (first, second))
    ctypes.memmove(first, other, layout.pool_bytes)
    ctypes.memmove(second, one, layout.pool_bytes)
    with pytest.raises(BugError, match="wrong in block 0"):
        run(runner, Row(RequestId("other"), [3], BLOCK, (0, 2), None))


def test_it_may_be_closed_twice() -> None:
    runner = open_runner(2)
    runner.close()
    runner.close()
