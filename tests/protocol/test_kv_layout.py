"""The shares of tensor-parallel shards make up the whole pool, and say which heads they are."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.errors import ConfigError
from splitserve.protocol.memory import KVLayout

WHOLE = KVLayout("bfloat16", 3, 4, 8, 16, 10, 2)


@st.composite
def shared_out(draw: st.DrawFn) -> tuple[KVLayout, int]:
    """A layout, also one that is a share itself, and a number that divides its heads."""
    size = st.integers(1, 5)
    each, count = draw(size), draw(st.integers(1, 6))
    heads = each * count
    first, others = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    layout = KVLayout("bfloat16", draw(size), heads, draw(size), draw(size), draw(size), 2)
    if draw(st.booleans()):
        layout = msgspec.structs.replace(
            layout, first_kv_head=first, total_kv_heads=first + heads + others
        )
    return layout, count


@given(shared_out())
def test_shards_hold_each_head_once_and_together_all_bytes(made: tuple[KVLayout, int]) -> None:
    layout, count = made
    shards = layout.shards(count)
    assert len(shards) == count
    assert [head for shard in shards for head in shard.kv_heads] == list(layout.kv_heads)
    assert sum(shard.pool_bytes for shard in shards) == layout.pool_bytes
    assert sum(shard.token_bytes for shard in shards) == layout.token_bytes
    for shard in shards:
        assert len(shard.kv_heads) == len(shards[0].kv_heads)
        assert shard.model_kv_heads == layout.model_kv_heads
        assert shard.num_layers == layout.num_layers
        assert (shard.num_blocks, shard.block_size) == (layout.num_blocks, layout.block_size)


def test_one_shard_is_the_whole_itself() -> None:
    assert WHOLE.shards(1) == (WHOLE,)
    (share,) = WHOLE.shards(2)[1].shards(1)
    assert (share.first_kv_head, share.total_kv_heads) == (2, 4)


@pytest.mark.parametrize("count", [-1, 0, 3, 8])
def test_heads_that_cannot_be_shared_out_evenly_are_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=f"is {count}: give a number that divides the 4 KV heads"):
        WHOLE.shards(count)
