"""A step's rows become tensors: each token once, each key where its block table says."""

from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_rig import sampling

from splitserve.engine.api import Row, SampleSpec
from splitserve.engine.layers.attention import Singles, Span
from splitserve.engine.models.batch import Batch
from splitserve.engine.runner.plan import plan_batch
from splitserve.ids import RequestId
from splitserve.protocol.memory import KVLayout

LAYOUT = KVLayout("bfloat16", 2, 3, 64, 16, 2000, 2)
SPEC = SampleSpec(sampling(), 0)


def plan(shapes: Sequence[tuple[int, int, bool]]) -> tuple[list[Row], Batch]:
    """Rows of (start, count, sampled) with block tables that share no block."""
    rows, free = [], 0
    for number, (start, count, sampled) in enumerate(shapes):
        blocks = -(-(start + count) // LAYOUT.block_size) + 1
        table = range(free + blocks - 1, free - 1, -1)
        free += blocks
        tokens = [number * 1000 + at for at in range(count)]
        rows.append(Row(RequestId(f"r{number}"), tokens, start, table, SPEC if sampled else None))
    return rows, plan_batch(rows, LAYOUT, torch.bfloat16)


def counts(batch: Batch) -> list[int]:
    return [part.count for part in batch.parts]


def decodes(lengths: Sequence[int]) -> Batch:
    return plan([(length - 1, 1, True) for length in lengths])[1]


def test_decodes_of_similar_length_are_attended_to_together() -> None:
    batch = decodes([60, 64, 80, 61])
    assert counts(batch) == [4]
    [group] = batch.parts
    assert isinstance(group, Singles)
    assert group.mask.shape == (4, 1, 1, 80)
    assert (group.mask == 0).sum(-1).flatten().tolist() == [60, 61, 64, 80]
    assert group.mask[0, 0, 0, 60:].isneginf().all()


def test_a_long_sequence_does_not_pad_short_ones() -> None:
    assert counts(decodes([50, 900, 60, 40])) == [3, 1]


def test_padding_that_creeps_up_starts_a_new_group() -> None:
    batch = decodes(range(20, 400, 20))
    assert sum(counts(batch)) == 19
    for part in batch.parts:
        assert isinstance(part, Singles)
        assert part.mask.isneginf().sum() <= 256 + 16 * part.count


def test_what_one_call_copies_is_bounded() -> None:
    # 768 bytes a token: 1 MiB holds two times 600 tokens.
    assert counts(decodes([600] * 5)) == [2, 2, 1]


def test_a_sequence_beyond_the_bound_is_attended_to_alone() -> None:
    assert counts(decodes([12_000, 12_000])) == [1, 1]


def test_chunks_of_prompts_are_attended_to_one_by_one() -> None:
    _, batch = plan([(0, 40, False), (20, 45, False)])
    first, later = batch.parts
    assert isinstance(first, Span)
    assert isinstance(later, Span)
    assert (first.first, first.count, first.start) == (0, 40, 0)
    assert (later.first, later.count, later.start) == (40, 45, 20)
    # Three and five blocks: K and V of three heads each.
    assert (len(first.index), len(later.index)) == (3 * 2 * 3, 5 * 2 * 3)


SHAPES = st.lists(
    st.tuples(st.integers(0, 700), st.sampled_from([1, 1, 2, 5, 33]), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(SHAPES)
def test_every_token_has_its_place(shapes: list[tuple[int, int, bool]]) -> None:
    rows, batch = plan(shapes)
    total = sum(count for _, count, _ in shapes)
    assert sorted(batch.tokens.tolist()) == sorted(token for row in rows for token in row.tokens)
    assert [part.first for part in batch.parts] == torch.tensor([0, *counts(batch)]).cumsum(0)[
        :-1
    ].tolist()
    assert sum(counts(batch)) == total
    slots = batch.slots.view(total, 2, LAYOUT.num_kv_heads).tolist()
    size = LAYOUT.block_size
    for token, position, places in zip(
        batch.tokens.tolist(), batch.positions.tolist(), slots, strict=True
    ):
        row = rows[token // 1000]
        assert position == row.start + token % 1000
        for kv, heads in enumerate(places):
            for head, place in enumerate(heads):
                run, slot = divmod(place, size)
                assert slot == position % size
                block, within = divmod(run, 2 * LAYOUT.num_kv_heads)
                assert block == row.blocks[position // size]
                assert within == kv * LAYOUT.num_kv_heads + head


@settings(max_examples=60, deadline=None)
@given(SHAPES)
def test_sampled_tokens_are_the_rows_last_in_the_rows_order(
    shapes: list[tuple[int, int, bool]],
) -> None:
    rows, batch = plan(shapes)
    expected = [row.tokens[-1] for row in rows if row.sample]
    chosen = batch.tokens if batch.sampled is None else batch.tokens[batch.sampled]
    assert chosen.tolist() == expected
    assert batch.samples == len(expected)
