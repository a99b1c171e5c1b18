"""Arrivals: seeded, of the asked rate and shape."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.errors import ConfigError
from splitserve.lab.load.arrivals import describe_arrivals, gamma, poisson, ramp, replayed


def test_the_same_seed_gives_the_same_arrivals_and_another_one_others() -> None:
    assert poisson(5, 20, 1) == poisson(5, 20, 1) != poisson(5, 20, 2)


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_burstiness_changes_the_shape_and_not_the_rate(cv: float) -> None:
    draws = [describe_arrivals(gamma(20, cv, 500, seed), 500) for seed in range(5)]
    assert sum(draw.rate for draw in draws) / 5 == pytest.approx(20, rel=0.1)
    assert sum(draw.cv for draw in draws) / 5 == pytest.approx(cv, rel=0.1)


def test_the_count_is_random_and_not_forced() -> None:
    counts = [len(poisson(10, 100, seed)) for seed in range(200)]
    mean = sum(counts) / 200
    variance = sum((count - mean) ** 2 for count in counts) / 199
    assert variance == pytest.approx(1000, rel=0.35)


def test_a_ramp_goes_from_one_rate_to_the_other() -> None:
    offsets = ramp(0, 40, 100, 3)
    assert len(offsets) == pytest.approx(2000, rel=0.1)
    assert sum(offset < 50 for offset in offsets) / len(offsets) == pytest.approx(0.25, abs=0.04)
    falling = ramp(40, 0, 100, 3)
    assert sum(offset < 50 for offset in falling) / len(falling) == pytest.approx(0.75, abs=0.04)


@given(st.floats(0.1, 50), st.floats(0.1, 5), st.floats(0.1, 30), st.integers(), st.floats(0, 50))
def test_offsets_ascend_within_the_window(
    rate: float, cv: float, duration_s: float, seed: int, last_rate: float
) -> None:
    for offsets in (gamma(rate, cv, duration_s, seed), ramp(rate, last_rate, duration_s, seed)):
        assert offsets == sorted(offsets)
        assert all(0 <= offset < duration_s for offset in offsets)


def test_a_trace_is_replayed_from_its_first_stamp() -> None:
    assert replayed([10.0, 10.5, 13.0], factor=2) == [0.0, 1.0, 6.0]


def test_ties_are_spread_over_the_tick_and_stay_in_it() -> None:
    spread = replayed([0.0] * 50 + [3.0] * 50, tick_s=3.0, seed=1)
    assert spread == sorted(spread)
    assert all(offset < 3 for offset in spread[:50])
    assert all(3 <= offset < 6 for offset in spread[50:])
    assert len(set(spread)) == 100
    assert replayed([0.0, 0.0, 3.0]) == [0.0, 0.0, 3.0]


def test_what_makes_no_sense_is_refused() -> None:
    for rate in (0, -1, math.inf, math.nan):
        with pytest.raises(ConfigError, match="rate"):
            poisson(rate, 10, 0)
    with pytest.raises(ConfigError, match="ascend"):
        replayed([2.0, 1.0])
    with pytest.raises(ConfigError, match="ramp"):
        ramp(0, 0, 10, 0)


def test_no_shape_is_claimed_for_too_few_arrivals() -> None:
    assert math.isnan(describe_arrivals([1.0], 10).cv)
    assert math.isnan(describe_arrivals([1.0, 1.0, 1.0], 10).cv)
