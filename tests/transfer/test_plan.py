"""Which bytes go where, against a copy token by token, and what is refused before a byte moves."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from splitserve.errors import BugError, ProtocolMismatch
from splitserve.protocol.memory import KVLayout
from splitserve.transfer.plan import (
    NoSharedHeads,
    Span,
    check_layer,
    check_own,
    check_reachable,
    check_spans,
    spans,
    uniform_piece,
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


@dataclass
class Case:
    """One copy. ``source_blocks[0]`` is block ``source_first`` of the prompt, likewise target."""

    source: KVLayout
    target: KVLayout
    tokens: range
    source_blocks: Sequence[int]
    target_blocks: Sequence[int]
    source_first: int
    target_first: int

    def spans(self) -> list[Span]:
        return spans(
            self.source,
            self.target,
            self.tokens,
            self.source_blocks,
            self.target_blocks,
            self.source_first,
            self.target_first,
        )

    def moved(self) -> list[tuple[int, int]]:
        """Offset at the source and at the target of every byte that must move."""
        pairs = []
        row = self.source.head_dim * self.source.itemsize
        for token in self.tokens:
            read = self.source_blocks[token // self.source.block_size - self.source_first]
            write = self.target_blocks[token // self.target.block_size - self.target_first]
            for half in range(2):
                for head in set(self.source.kv_heads) & set(self.target.kv_heads):
                    a = slot_offset(self.source, read, half, head, token)
                    b = slot_offset(self.target, write, half, head, token)
                    pairs += [(a + i, b + i) for i in range(row)]
        return pairs


def slot_offset(pool: KVLayout, block: int, half: int, head: int, token: int) -> int:
    """Where a token's row of a head begins in ``[block, K/V, kv_head, slot, head_dim]``."""
    slot = token % pool.block_size
    index = block
    for size, place in (
        (2, half),
        (pool.num_kv_heads, head - pool.first_kv_head),
        (pool.block_size, slot),
        (pool.head_dim * pool.itemsize, 0),
    ):
        index = index * size + place
    return index


@st.composite
def heads(draw: st.DrawFn, total: int) -> tuple[int, int]:
    """First and number."""
    first = draw(st.integers(0, total - 1))
    return first, draw(st.integers(1, total - first))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    total = draw(st.integers(1, 4))
    same = draw(st.booleans())
    ours = draw(heads(total)), draw(st.sampled_from([1, 2, 3, 4, 8]))
    theirs = ours if same else (draw(heads(total)), draw(st.sampled_from([1, 2, 3, 4, 6])))
    row = {"head_dim": draw(st.integers(1, 3)), "itemsize": draw(st.sampled_from([1, 2]))}
    pools = [
        layout(
            12,
            num_kv_heads=number,
            first_kv_head=first,
            total_kv_heads=total,
            block_size=size,
            **row,
        )
        for (first, number), size in (ours, theirs)
    ]
    limit = 10 * min(pool.block_size for pool in pools)
    start = draw(st.integers(0, limit))
    tokens = range(start, draw(st.integers(start, limit)))
    held = [draw(blocks(pool, tokens)) for pool in pools]
    return Case(pools[0], pools[1], tokens, held[0][1], held[1][1], held[0][0], held[1][0])


@st.composite
def blocks(draw: st.DrawFn, pool: KVLayout, tokens: range) -> tuple[int, list[int]]:
    """Number within the prompt of the first block that is held, and pool blocks for the tokens."""
    first = draw(st.integers(0, tokens.start // pool.block_size))
    count = -(-tokens.stop // pool.block_size) - first
    chosen = draw(st.permutations(range(pool.num_blocks)))[: max(count, 0)]
    return first, sorted(chosen) if draw(st.booleans()) else chosen


@given(cases())
def test_spans_name_exactly_the_bytes_of_the_tokens_once(case: Case) -> None:
    made = case.spans()
    check_spans(made, case.source.layer_bytes, case.target.layer_bytes)
    pairs = [(span.source + i, span.target + i) for span in made for i in range(span.nbytes)]
    assert len(pairs) == len(set(pairs))
    assert sorted(pairs) == sorted(case.moved())


@given(cases())
def test_spans_that_follow_each_other_on_both_sides_are_one(case: Case) -> None:
    made = case.spans()
    for last, span in pairwise(made):
        follows = last.source + last.nbytes, last.target + last.nbytes
        assert (span.source, span.target) != follows


@given(cases(), st.integers(1, 4096))
def test_a_uniform_piece_divides_every_span_and_is_the_largest(case: Case, whole: int) -> None:
    made = case.spans()
    piece = uniform_piece(made, whole)
    numbers = [n for span in made for n in (span.source, span.target, span.nbytes)]
    assert all(n % piece == 0 for n in [*numbers, whole])
    assert gcd(*(n // piece for n in [*numbers, whole])) == 1


def test_heads_that_were_split_over_two_pools_are_whole_again_in_one() -> None:
    whole = layout(8, num_kv_heads=4)
    parts = [
        layout(8, num_kv_heads=2, first_kv_head=first, total_kv_heads=4, block_size=8)
        for first in (0, 2)
    ]
    data = random.Random(0).randbytes(whole.layer_bytes)
    arrived = bytearray(whole.layer_bytes)
    blocks, tokens = [5, 2, 7], range(12)
    for part in parts:
        held = bytearray(part.layer_bytes)
        copy(spans(whole, part, tokens, blocks, [6, 1]), data, held)
        copy(spans(part, whole, tokens, [6, 1], blocks), held, arrived)
    for block in range(whole.num_blocks):
        start = block * whole.block_bytes
        sent = data[start : start + whole.block_bytes] if block in blocks else bytes(128)
        assert arrived[start : start + whole.block_bytes] == sent


def copy(made: Sequence[Span], source: bytes | bytearray, target: bytearray) -> None:
    for span in made:
        read = source[span.source : span.source + span.nbytes]
        target[span.target : span.target + span.nbytes] = read


def test_consecutive_blocks_of_one_layout_become_one_span() -> None:
    pool = layout(64)
    made = spans(pool, pool, range(30 * 4), range(10, 40), range(20, 50))
    block = pool.block_bytes
    assert made == [Span(10 * block, 20 * block, 30 * block)]


def test_blocks_consecutive_on_one_side_only_stay_apart() -> None:
    pool = layout(64)
    assert len(spans(pool, pool, range(12), [1, 2, 3], [5, 7, 8])) == 2


def test_no_tokens_need_no_blocks() -> None:
    pool = layout(64)
    assert spans(pool, pool, range(8, 8), [], []) == []


@pytest.mark.parametrize(
    ("tokens", "source_first"),
    [(range(-1, 4), 0), (range(9), 0), (range(4, 13), 1), (range(3, 8), 1), (range(0, 8, 2), 0)],
    ids=str,
)
def test_tokens_that_lie_in_none_of_the_blocks_are_refused(
    tokens: range, source_first: int
) -> None:
    pool = layout(64)
    with pytest.raises(BugError, match="not within blocks"):
        spans(pool, pool, tokens, [1, 2], range(64), source_first)
    with pytest.raises(BugError, match="not within blocks"):
        spans(pool, pool, tokens, range(64), [1, 2], 0, source_first)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dtype", "float32"),
        ("num_layers", 3),
        ("model_kv_heads", 2),
        ("head_dim", 4),
        ("itemsize", 4),
    ],
)
def test_layouts_that_cannot_be_copied_between_are_refused_by_name(
    field: str, value: object
) -> None:
    changed = "num_kv_heads" if field == "model_kv_heads" else field
    with pytest.raises(ProtocolMismatch, match=field):
        check_reachable(layout(4), layout(4, **{changed: value}), 1 << 20)


def test_pools_may_differ_in_number_and_size_of_blocks_and_in_heads() -> None:
    half = layout(400, num_kv_heads=2, first_kv_head=2, total_kv_heads=4, block_size=16)
    check_reachable(layout(4, num_kv_heads=4), half, half.pool_bytes)


def test_pools_without_a_head_in_common_are_refused() -> None:
    ours = layout(4, num_kv_heads=2, total_kv_heads=4)
    theirs = layout(4, num_kv_heads=2, first_kv_head=2, total_kv_heads=4)
    with pytest.raises(NoSharedHeads, match="no KV head"):
        check_reachable(ours, theirs, theirs.pool_bytes)


@pytest.mark.parametrize(("field", "value"), [("head_dim", 4), ("num_blocks", 5)])
def test_other_heads_are_the_reason_only_where_nothing_else_is(field: str, value: int) -> None:
    ours = layout(4, num_kv_heads=2, total_kv_heads=4)
    told = layout(4, num_kv_heads=2, first_kv_head=2, total_kv_heads=4)
    other = structs.replace(told, **{field: value})
    with pytest.raises(ProtocolMismatch, match=r"head_dim|bytes") as refused:
        check_reachable(ours, other, told.pool_bytes)
    assert not isinstance(refused.value, NoSharedHeads)


@pytest.mark.parametrize(
    "changes",
    [
        {"block_size": 0},
        {"block_size": -4},
        {"num_blocks": -1},
        {"num_kv_heads": -1, "total_kv_heads": 1},
        {"first_kv_head": -1},
        {"first_kv_head": 1},
    ],
    ids=str,
)
def test_a_description_of_no_pool_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ProtocolMismatch, match="no KV pool"):
        check_reachable(layout(4), layout(**({"num_blocks": 4} | changes)), 1 << 20)


@pytest.mark.parametrize(
    "span",
    [
        Span(-1, 0, 4),
        Span(0, -1, 4),
        Span(97, 0, 4),
        Span(0, 197, 4),
        Span(0, 0, 0),
    ],
    ids=str,
)
def test_a_span_that_leaves_a_layer_is_refused(span: Span) -> None:
    with pytest.raises(BugError, match="leaves a layer"):
        check_spans([Span(0, 0, 1), span], 100, 200)


@pytest.mark.parametrize("layer", [-1, 2])
def test_a_layer_that_the_pools_lack_is_refused(layer: int) -> None:
    with pytest.raises(BugError, match="no layer"):
        check_layer(layer, layout(4))


def test_a_pool_smaller_than_its_layout_is_refused() -> None:
    pool = layout(4)
    with pytest.raises(BugError, match="bytes"):
        check_own(pool, pool.pool_bytes - 1)
    with pytest.raises(ProtocolMismatch, match="bytes"):
        check_reachable(pool, pool, pool.pool_bytes - 1)
