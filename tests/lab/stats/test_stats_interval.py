"""The t interval over runs, and what it says when runs cannot give one."""

import math

import pytest

from splitserve.lab.stats.interval import (
    Interval,
    deviation,
    mean,
    mean_interval,
    typical_interval,
    typical_upper,
)


def test_the_t_interval_is_a_worked_one() -> None:
    # 1..5: mean 3, error sqrt(2.5 / 5), t(0.975, 4) = 2.776445.
    found = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.low, found.high) == pytest.approx((1.036757, 4.963243), abs=1e-6)
    assert found.holds(1.04)
    assert not found.holds(1.03)


def test_an_end_that_runs_say_nothing_about_is_infinite() -> None:
    assert mean_interval([1.0]) == Interval(-math.inf, math.inf, 0.95)
    assert mean_interval([1.0, math.inf]) == Interval(-math.inf, math.inf, 0.95)
    assert mean_interval([math.inf, math.inf]) == Interval(math.inf, math.inf, 0.95)


def test_times_are_bounded_by_their_logarithms() -> None:
    found = typical_interval([1.0, 10.0, 100.0], 0.9)
    assert math.sqrt(found.low * found.high) == pytest.approx(10.0)
    assert typical_upper([1.0, 10.0, 100.0]) == pytest.approx(found.high)
    assert typical_upper([2.0, 2.0, 2.0]) == pytest.approx(2.0)


def test_a_bound_of_times_is_infinite_where_runs_cannot_give_one() -> None:
    assert typical_upper([1.0, math.inf, 1.0]) == math.inf
    assert typical_upper([1.0]) == math.inf
    assert typical_upper([1e-150, 1e150]) == math.inf


def test_too_few_values_and_times_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        mean([])
    with pytest.raises(ValueError, match="two values"):
        deviation([1.0])
    with pytest.raises(ValueError, match="positive"):
        typical_upper([0.0, 1.0])
