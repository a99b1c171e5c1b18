"""Rows become the arrays that the device is given."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from splitserve.engine.api import PENDING, Row, SampleSpec
from splitserve.engine.cuda.step import BlockTables, Step, plan_step
from splitserve.ids import RequestId
from splitserve.protocol.sampling import SamplingParams

SPEC = SampleSpec(SamplingParams(seed=0, max_tokens=1), 0)
SIZE = 4


def row(name: str, tokens: list[int], start: int, blocks: list[int], sampled: bool = True) -> Row:
    return Row(RequestId(name), tokens, start, blocks, SPEC if sampled else None)


def test_singles_come_first_and_choices_keep_the_order_of_the_rows() -> None:
    rows = [
        row("prompt", [10, 11, 12], 4, [7, 3]),
        row("one", [20], 5, [1, 2]),
        row("unfinished", [30, 31], 0, [5], sampled=False),
        Row(RequestId("two"), [PENDING], 0, [6], SPEC, follows=3),
    ]
    step = plan_step(rows, SIZE, BlockTables(8))
    assert step.singles == 2
    assert step.records.tolist() == [
        [20, -1, 5, 2 * SIZE + 1],
        [PENDING, 3, 0, 6 * SIZE],
        [10, -1, 4, 3 * SIZE],
        [11, -1, 5, 3 * SIZE + 1],
        [12, -1, 6, 3 * SIZE + 2],
        [30, -1, 0, 5 * SIZE],
        [31, -1, 1, 5 * SIZE + 1],
    ]
    assert step.sampled.tolist() == [4, 0, 1]
    assert step.spans.tolist() == [0, 3, 5]
    assert step.single_pages.indptr.tolist() == [0, 2, 3]
    assert step.single_pages.indices.tolist() == [1, 2, 6]
    assert step.single_pages.last.tolist() == [2, 1]
    assert step.span_pages.indices.tolist() == [7, 3, 5]
    assert step.span_pages.last.tolist() == [3, 2]
    assert not step.decodes_only


def test_only_sampled_singles_make_a_decode_step() -> None:
    tables = BlockTables(8)
    both = [row("a", [1], 0, [1]), row("b", [2], 3, [2])]
    assert plan_step(both, SIZE, tables).decodes_only
    unsampled = [row("a", [1], 0, [1]), row("b", [2], 3, [2], sampled=False)]
    assert not plan_step(unsampled, SIZE, tables).decodes_only


def test_a_table_that_grew_is_read_on_and_one_that_was_replaced_anew() -> None:
    tables = BlockTables(8)
    blocks = [1, 2]

    def pages(position: int, own: list[int]) -> list[int]:
        step = plan_step([row("a", [0], position, own)], SIZE, tables)
        return step.single_pages.indices.tolist()

    assert pages(7, blocks) == [1, 2]
    blocks += [9, 8]
    assert pages(8, blocks) == [1, 2, 9]
    assert pages(12, blocks) == [1, 2, 9, 8]
    assert pages(12, [4, 5, 6, 7]) == [4, 5, 6, 7]


def test_forgets_the_tables_that_were_not_used_for_longest() -> None:
    tables = BlockTables(2)
    for name in ("a", "b", "c", "a"):
        step = plan_step([row(name, [0], 0, [3])], SIZE, tables)
        assert step.single_pages.indices.tolist() == [3]


@st.composite
def sequences(draw: st.DrawFn) -> list[Row]:
    free = draw(st.permutations(range(60)))
    rows, at = [], 0
    for number in range(draw(st.integers(1, 6))):
        start, count = draw(st.integers(0, 14)), draw(st.integers(1, 9))
        blocks = -(-(start + count) // SIZE) + draw(st.integers(0, 2))
        tokens = draw(st.lists(st.integers(0, 99), min_size=count, max_size=count))
        own = list(free[at : at + blocks])
        rows.append(row(f"r{number}", tokens, start, own, draw(st.booleans())))
        at += blocks
    return rows


def where(step: Step, rows: list[Row]) -> dict[str, list[int]]:
    """Token numbers of each row, in the step's order."""
    singles = [r for r in rows if len(r.tokens) == 1]
    spans = [r for r in rows if len(r.tokens) > 1]
    found = {r.request_id: [at] for at, r in enumerate(singles)}
    for r, first, end in zip(spans, step.spans, step.spans[1:], strict=False):
        found[r.request_id] = list(range(step.singles + first, step.singles + end))
    return found


@given(rows=sequences())
@settings(max_examples=150, deadline=None)
def test_every_token_goes_where_its_block_table_says(rows: list[Row]) -> None:
    step = plan_step(rows, SIZE, BlockTables(8))
    places = where(step, rows)
    for r in rows:
        for offset, at in enumerate(places[r.request_id]):
            position = r.start + offset
            slot = r.blocks[position // SIZE] * SIZE + position % SIZE
            assert step.records[at].tolist() == [r.tokens[offset], -1, position, slot]
    ends = [places[r.request_id][-1] for r in rows if r.sample is not None]
    assert step.sampled.tolist() == ends
    assert len(np.unique(step.records[:, 3])) == step.tokens
