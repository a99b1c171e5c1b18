"""Arrows: beyond the smallest effect, shown equal, or neither."""

import math

import pytest
from made_study import RULES, pairs, run

from splitserve.lab.stats.paired import Paired, Scale
from splitserve.lab.verdict.comparison import Direction, compare, compare_all, direction, directions
from splitserve.lab.verdict.improvement import TAIL_ITL, TTFT, improvement

TENTH = math.log(1.1)


@pytest.mark.parametrize(
    ("values", "arrow"),
    [
        ((-0.30, -0.31, -0.29, -0.30), Direction.DOWN),
        ((0.30, 0.31, 0.29, 0.30), Direction.UP),
        ((0.01, -0.01, 0.0, 0.01), Direction.SAME),
        ((0.5, -0.5, 0.4, -0.4), Direction.UNCLEAR),
        ((-0.12, -0.08, -0.11, -0.07), Direction.UNCLEAR),
        ((math.inf,) * 6, Direction.UP),
        ((math.inf,) * 4, Direction.UNCLEAR),
        ((math.nan,) * 8, Direction.UNCLEAR),
    ],
    ids=["down", "up", "same", "wide", "across the border", "failed", "few failed", "both failed"],
)
def test_an_arrow_needs_the_whole_interval(values: tuple[float, ...], arrow: Direction) -> None:
    assert direction(Paired(Scale.RATIO, values), TENTH) is arrow


def test_each_quantity_keeps_its_own_line() -> None:
    found = directions(compare(pairs(b=run(tail_itl_s=0.04, ttft_s=2.4, throughput=500.0))), RULES)
    assert found is not None
    assert (found.tail_itl, found.ttft, found.attainment) == (
        Direction.DOWN,
        Direction.UP,
        Direction.SAME,
    )
    assert found.throughput is Direction.SAME
    assert not found.all_same


def test_what_was_not_measured_has_no_arrow() -> None:
    assert directions(compare(()), RULES) is None
    bare = tuple(type(p)(run(first_gap_s=None, throughput=None), p.b, p.position) for p in pairs())
    found = directions(compare(bare), RULES)
    assert found is not None
    assert (found.first_gap, found.throughput) == (None, None)


def test_either_latency_is_an_improvement_and_the_other_is_not_counted_in() -> None:
    tail = improvement(compare_all(pairs(b=run(tail_itl_s=0.04))), RULES)
    first = improvement(compare_all(pairs(b=run(ttft_s=0.6))), RULES)
    assert (tail.improved, first.improved) == ({TAIL_ITL}, {TTFT})
    assert (tail.slo_gain, tail.shown) == (False, False)


def test_significant_but_too_small_is_no_improvement() -> None:
    found = improvement(compare_all(pairs(b=run(tail_itl_s=0.070))), RULES)
    assert found.tests[TAIL_ITL].rejected
    assert (found.improved, found.possible) == (frozenset(), False)
    assert found.ruled_out == {TAIL_ITL, TTFT}
