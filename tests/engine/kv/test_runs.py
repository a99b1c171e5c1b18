"""Blocks that are handed out together lie side by side as far as may be."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.bench.placements import Placement, Traffic
from splitserve.engine.kv.blocks import BlockPool
from splitserve.engine.kv.runs import fewest_runs
from splitserve.protocol.memory import KVLayout

LAYOUT = KVLayout("bfloat16", 1, 1, 64, 16, 1024, 2)


def runs_in(blocks: list[int]) -> int:
    return sum(after != before + 1 for before, after in pairwise(blocks)) + bool(blocks)


@given(st.sets(st.integers(0, 60), min_size=1), st.data())
def test_what_is_picked_is_of_the_candidates_each_once_and_ascends(
    candidates: set[int], data: st.DataObject
) -> None:
    wanted = data.draw(st.integers(1, len(candidates)))
    picked = fewest_runs(candidates, wanted)
    assert len(picked) == wanted
    assert picked == sorted(set(picked) & candidates)


@given(st.sets(st.integers(0, 60), min_size=1), st.data())
def test_no_choice_has_fewer_runs(candidates: set[int], data: st.DataObject) -> None:
    """Of each size the longest runs are the fewest that reach it."""
    wanted = data.draw(st.integers(1, len(candidates)))
    lengths, run = [], 0
    for block in range(62):
        run = run + 1 if block in candidates else 0
        if run and block + 1 not in candidates:
            lengths.append(run)
    fewest, reached = 0, 0
    for length in sorted(lengths, reverse=True):
        if reached < wanted:
            fewest, reached = fewest + 1, reached + length
    assert runs_in(fewest_runs(candidates, wanted)) == fewest


def test_the_shortest_run_that_has_room_is_taken() -> None:
    assert fewest_runs([1, 2, 3, 4, 10, 11, 12, 20], 3) == [10, 11, 12]
    assert fewest_runs([1, 2, 3, 4, 10, 11, 12, 20], 5) == [1, 2, 3, 4, 20]


def test_free_blocks_go_before_cached_ones() -> None:
    pool = BlockPool(8)
    blocks = pool.allocate(4) or []
    for block in blocks:
        pool.register(block, bytes([block]))
    pool.free(blocks)
    assert pool.allocate(4) == [4, 5, 6, 7]
    assert pool.find([bytes([block]) for block in blocks]) == blocks


def test_only_the_oldest_are_chosen_among() -> None:
    """The latest content stays, however well it lies."""
    pool = BlockPool(12)
    held = [pool.allocate(1) or [] for _ in range(8)]
    late = pool.allocate(4) or []
    for block in [*range(8), *late]:
        pool.register(block, bytes([block]))
    for blocks in held[::2] + held[1::2]:
        pool.free(blocks)
    pool.free(late)
    assert pool.allocate(4) == [0, 1, 2, 3]
    assert pool.find([bytes([block]) for block in late]) == late


@pytest.mark.parametrize("at_once", [1, 8, 16])
def test_after_much_coming_and_going_prompts_still_move_in_runs(at_once: int) -> None:
    """Taken as they came, no two blocks would lie side by side on both ends."""
    chance, traffic = random.Random(at_once), Traffic(LAYOUT.num_blocks, at_once)
    blocks = pieces = 0
    for number in range(500):
        count = chance.randint(8, 96)
        ours, theirs = traffic.prompt(count)
        assert len(ours) == len(theirs) == count
        if number > 100:
            blocks += count
            pieces += len(Placement("used", ours, theirs).spans(LAYOUT))
    assert blocks / pieces > 6
