"""A/A pairs and drift: whether a study may be trusted at all."""

import math

import pytest

from splitserve.lab.stats.control import drift, noise_floor, within_noise
from splitserve.lab.stats.paired import Paired, Scale

LEAST = -math.log(0.8)


def logs(*values: float) -> Paired:
    return Paired(Scale.RATIO, values)


def test_noise_around_zero_is_clean_and_plans_the_study() -> None:
    floor = noise_floor(logs(0.05, -0.05, 0.02, -0.02), LEAST)
    assert floor.clean
    assert floor.sd == pytest.approx(math.sqrt(0.0058 / 3))


def test_a_large_difference_from_itself_voids_the_study() -> None:
    assert not noise_floor(logs(0.40, 0.42, 0.39, 0.41), LEAST).clean


def test_a_small_difference_is_harmless_even_when_it_is_certain() -> None:
    floor = noise_floor(logs(0.050, 0.051, 0.049, 0.050), LEAST)
    assert not floor.interval.holds(0.0)
    assert floor.clean


def test_a_wide_interval_around_zero_is_noise() -> None:
    assert noise_floor(logs(1.5, -0.5, 0.9, -0.4), LEAST).clean


def test_a_failing_first_run_in_every_pair_is_no_noise() -> None:
    assert not noise_floor(logs(*[-math.inf] * 6), LEAST).clean
    assert not noise_floor(logs(*[-math.inf] * 3, 0.0), LEAST).clean
    assert noise_floor(logs(-math.inf, 0.01, -0.01, 0.0), LEAST).clean


def test_a_second_start_is_compared_pair_by_pair_when_there_are_few() -> None:
    assert within_noise(logs(0.1, -0.1), LEAST, None)
    assert not within_noise(logs(0.1, 0.5), LEAST, None)
    assert within_noise(logs(0.3, -0.3, 0.1, -0.1), LEAST, None)
    assert not within_noise(logs(math.nan), LEAST, None)


def test_one_second_start_may_differ_as_much_as_two_pairs_of_the_same_do() -> None:
    calm, noisy = logs(0.01, -0.01, 0.02, 0.0), logs(0.2, -0.2, 0.1, -0.1)
    assert not within_noise(logs(0.5), LEAST, calm)
    assert within_noise(logs(0.5), LEAST, noisy)
    assert not within_noise(logs(0.5), LEAST, logs(0.2))


def test_a_slope_over_the_order_is_flagged_with_its_size() -> None:
    noise = (0.01, -0.02, 0.015, -0.01, 0.02, -0.015, 0.005, -0.005)
    found = drift(logs(*(0.1 * i + e for i, e in enumerate(noise))), range(8))
    assert found.flagged
    assert found.slope == pytest.approx(0.1, abs=0.005)
    assert not drift(logs(*noise), range(8)).flagged


def test_the_slope_has_the_p_value_of_a_worked_regression() -> None:
    # y = 1, 3, 2, 5 over 0..3: slope 1.1, t = 1.1 / sqrt(1.35 / 5) = 2.117, p = 0.16849.
    found = drift(logs(1.0, 3.0, 2.0, 5.0), range(4))
    assert found.slope == pytest.approx(1.1)
    assert found.p == pytest.approx(0.16849, abs=1e-4)


def test_failures_drift_by_their_order() -> None:
    rising = logs(-0.3, -0.1, 0.0, 0.1, 0.2, 0.3, math.inf, math.inf)
    assert drift(rising, range(8)).flagged
    assert not drift(logs(0.0, math.inf, 0.1, -0.1, math.inf, 0.05), range(6)).flagged


def test_few_pairs_or_equal_ones_say_nothing_about_drift() -> None:
    assert drift(logs(0.0, 1.0, 2.0), range(3)).p == 1.0
    assert drift(logs(0.5, 0.5, 0.5, 0.5), range(4)).p == 1.0
    assert drift(logs(0.0, 1.0, 2.0, math.nan), range(4)).p == 1.0
    with pytest.raises(ValueError, match="longer"):
        drift(logs(0.0, 1.0), [0.0])


def test_a_perfect_line_is_certain() -> None:
    assert drift(logs(0.0, 1.0, 2.0, 3.0), range(4)).flagged
