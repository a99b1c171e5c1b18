"""The search for the greatest good rate: bounds that are shown, and where to look next."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.lab.stats.goodput import RatePoint, goodput, smoothed
from splitserve.lab.stats.shares import Count


def point(rate: float, good: int, total: int = 1000) -> RatePoint:
    return RatePoint(rate, Count(good, total))


def test_a_rate_counts_as_carried_only_when_its_lower_bound_reaches_the_target() -> None:
    found = goodput([point(1, 990), point(2, 905), point(4, 500)], target=0.9)
    assert (found.carried, found.not_shown, found.missed) == (1, 2, 4)
    assert found.next_rate == pytest.approx(math.sqrt(2))


def test_the_search_goes_up_until_a_rate_is_missed_and_down_until_one_is_carried() -> None:
    up = goodput([point(1, 1000), point(2, 1000)], 0.9)
    assert (up.not_shown, up.next_rate) == (math.inf, 4)
    assert goodput([point(2, 100)], 0.9).next_rate == 1


def test_the_search_ends_when_both_sides_are_close() -> None:
    found = goodput([point(1.0, 1000), point(1.04, 100)], 0.9)
    assert found.next_rate is None


@given(st.floats(0.2, 50.0))
def test_bisection_finds_the_knee(knee: float) -> None:
    points = [point(1.0, 1000 if knee >= 1.0 else 0)]
    while (rate := goodput(points, 0.9).next_rate) is not None:
        assert len(points) < 40
        points.append(point(rate, 1000 if rate <= knee else 0))
    found = goodput(points, 0.9)
    assert found.carried <= knee < found.missed <= 1.05 * found.carried


def test_a_lucky_window_at_a_higher_rate_is_pooled_with_the_one_below() -> None:
    found = smoothed([point(2, 950), point(1, 850), point(3, 100)])
    assert [(p.rate, p.good) for p in found] == [
        (1, Count(1800, 2000)),
        (2, Count(1800, 2000)),
        (3, Count(100, 1000)),
    ]


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 50)), min_size=1, max_size=12))
def test_smoothed_attainment_never_rises_and_no_rate_is_lost(raw: list[tuple[int, int]]) -> None:
    found = smoothed([point(float(rate), good, 50) for rate, good in raw])
    shares = [p.good.share for p in found]
    assert shares == sorted(shares, reverse=True)
    assert [p.rate for p in found] == sorted({float(rate) for rate, _ in raw})


def test_a_search_needs_a_point() -> None:
    with pytest.raises(ValueError, match="no point"):
        goodput([], 0.9)
