"""Which bytes go where: checked against a brute-force copy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.errors import BugError, ProtocolMismatch
from splitserve.protocol.memory import Copy, KVLayout
from splitserve.transfer.bounds import check_bounds
from splitserve.transfer.plan import block_runs, check_compatible, layer_copies


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
def test_runs_copy_exactly_the_named_blocks(data: st.DataObject) -> None:
    source, target = layout(12), layout(20)
    count = data.draw(st.integers(0, 12))
    sources = data.draw(st.permutations(range(12)))[:count]
    targets = data.draw(st.permutations(range(20)))[:count]
    if data.draw(st.booleans()):
        sources, targets = sorted(sources), sorted(targets)
    layer = data.draw(st.integers(0, 1))
    from_pool = bytes(i % 251 for i in range(source.pool_bytes))
    to_pool = bytearray(target.pool_bytes)
    expected = bytearray(target.pool_bytes)
    for a, b in zip(sources, targets, strict=True):
        start, end = source.offset(layer, a), target.offset(layer, b)
        expected[end : end + target.block_bytes] = from_pool[start : start + source.block_bytes]

    for copy in layer_copies(block_runs(sources, targets), source, target, layer):
        check_bounds(copy, source.pool_bytes, target.pool_bytes)
        to_pool[copy.target : copy.target + copy.nbytes] = from_pool[
            copy.source : copy.source + copy.nbytes
        ]

    assert to_pool == expected


def test_consecutive_blocks_become_one_copy() -> None:
    pool = layout(64)
    runs = block_runs(range(10, 40), range(20, 50))
    assert [(run.source, run.target, run.count) for run in runs] == [(10, 20, 30)]
    assert layer_copies(runs, pool, pool, 1) == [
        Copy(pool.offset(1, 10), pool.offset(1, 20), 30 * pool.block_bytes)
    ]


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
    "copy", [Copy(-1, 0, 4), Copy(0, -1, 4), Copy(97, 0, 4), Copy(0, 197, 4), Copy(0, 0, -1)]
)
def test_a_copy_that_leaves_a_pool_is_refused(copy: Copy) -> None:
    with pytest.raises(BugError, match="leaves a pool"):
        check_bounds(copy, 100, 200)
