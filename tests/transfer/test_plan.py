"""Which blocks go where, and what is refused before a byte moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.errors import BugError, ProtocolMismatch
from splitserve.protocol.memory import KVLayout
from splitserve.transfer.plan import (
    BlockRun,
    block_runs,
    check_compatible,
    check_layer,
    check_own,
    check_peer,
    check_runs,
)


def layout(num_blocks: int, **changes: object) -> KVLayout:
    values: dict[str, object] = {
        "dtype": "bfloat16",
        "num_layers": 2,
        "num_kv_heads": 1,
        "head_dim": 2,
        "block_size": 4,
        "num_blocks": num_blocks,
        "itemsize": 2,
    }
    return KVLayout(**(values | changes))  # type: ignore[arg-type]


def test_token_bytes_are_those_of_a_known_model() -> None:
    llama_70b = KVLayout("bfloat16", 80, 8, 128, 16, 1, 2)
    assert llama_70b.token_bytes == 320 * 1024
    assert llama_70b.pool_bytes == 16 * llama_70b.token_bytes


@given(st.data())
def test_runs_name_exactly_the_pairs_of_blocks(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 12))
    sources = data.draw(st.permutations(range(12)))[:count]
    targets = data.draw(st.permutations(range(20)))[:count]
    if data.draw(st.booleans()):
        sources, targets = sorted(sources), sorted(targets)
    runs = block_runs(sources, targets)
    check_runs(runs, 12, 20)
    pairs = [(run.source + i, run.target + i) for run in runs for i in range(run.count)]
    assert pairs == list(zip(sources, targets, strict=True))


def test_consecutive_blocks_become_one_run() -> None:
    assert block_runs(range(10, 40), range(20, 50)) == [BlockRun(10, 20, 30)]


def test_blocks_consecutive_on_one_side_only_stay_apart() -> None:
    assert len(block_runs([1, 2, 3], [5, 7, 8])) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dtype", "float32"),
        ("num_layers", 3),
        ("num_kv_heads", 2),
        ("head_dim", 4),
        ("block_size", 8),
        ("itemsize", 4),
    ],
)
def test_layouts_that_cannot_be_copied_between_are_refused_by_name(
    field: str, value: object
) -> None:
    with pytest.raises(ProtocolMismatch, match=field):
        check_compatible(layout(4), layout(4, **{field: value}))


def test_pools_may_differ_in_size() -> None:
    check_compatible(layout(4), layout(400))


@pytest.mark.parametrize(
    "run",
    [
        BlockRun(-1, 0, 4),
        BlockRun(0, -1, 4),
        BlockRun(97, 0, 4),
        BlockRun(0, 197, 4),
        BlockRun(0, 0, 0),
    ],
    ids=str,
)
def test_a_run_that_leaves_a_pool_is_refused(run: BlockRun) -> None:
    with pytest.raises(BugError, match="leaves a pool"):
        check_runs([BlockRun(0, 0, 1), run], 100, 200)


@pytest.mark.parametrize("layer", [-1, 2])
def test_a_layer_that_the_pools_lack_is_refused(layer: int) -> None:
    with pytest.raises(BugError, match="no layer"):
        check_layer(layer, layout(4))


def test_a_pool_smaller_than_its_layout_is_refused() -> None:
    pool = layout(4)
    with pytest.raises(BugError, match="bytes"):
        check_own(pool, pool.pool_bytes - 1)
    with pytest.raises(ProtocolMismatch, match="bytes"):
        check_peer(pool, pool, pool.pool_bytes - 1)
