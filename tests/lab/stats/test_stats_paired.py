"""Paired runs: the t interval of log ratios, and order where logarithms end."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.lab.stats.paired import Paired, Scale, differences, pooled_ratio, ratios

TIMES = st.lists(st.floats(0.01, 100.0), min_size=3, max_size=12)


@pytest.mark.parametrize(
    ("pairs", "half"), [(4, 1.59), (5, 1.24), (6, 1.05), (8, 0.84), (10, 0.72), (12, 0.64)]
)
def test_half_widths_in_deviations_are_those_of_the_t_table(pairs: int, half: float) -> None:
    effect = Paired(Scale.DIFFERENCE, tuple(float(i) for i in range(pairs)))
    interval = effect.interval(0.95)
    assert effect.sd is not None
    assert (interval.high - interval.low) / 2 / effect.sd == pytest.approx(half, abs=0.005)


def test_the_estimate_is_the_geometric_mean_of_ratios() -> None:
    effect = ratios([1.0, 1.0, 1.0], [0.5, 1.0, 2.0])
    assert effect.ratio == pytest.approx(1.0)
    assert ratios([2.0, 4.0], [1.0, 2.0]).ratio == pytest.approx(0.5)


def test_p_values_agree_with_a_worked_t_test() -> None:
    # d = 1, 2, 3, 4, 5: t = 3 / (sqrt(2.5) / sqrt(5)) = 4.2426, p two-sided 0.013236 at 4 degrees.
    effect = Paired(Scale.DIFFERENCE, (1.0, 2.0, 3.0, 4.0, 5.0))
    assert 2 * effect.p_above() == pytest.approx(0.013236, abs=1e-6)
    assert effect.p_below() == pytest.approx(1 - 0.013236 / 2, abs=1e-6)


@given(TIMES, st.floats(0.01, 100.0))
def test_units_do_not_matter(times: list[float], unit: float) -> None:
    other = [t * (1.1 + 0.2 * (i % 3)) for i, t in enumerate(times)]
    here = ratios(times, other).ratio_interval()
    there = ratios([unit * t for t in times], [unit * t for t in other]).ratio_interval()
    assert there.low == pytest.approx(here.low, rel=1e-6)
    assert there.high == pytest.approx(here.high, rel=1e-6)


@given(TIMES)
def test_the_interval_and_the_p_value_agree(times: list[float]) -> None:
    effect = ratios([1.0] * len(times), times)
    if not effect.by_order:
        assert (effect.interval(0.95).high < 0) == (effect.p_below() < 0.025)


def test_six_pairs_of_one_sign_are_just_significant_by_order() -> None:
    effect = ratios([math.inf] + [1.0] * 5, [1.0] + [0.5] * 5)
    assert effect.by_order
    assert 2 * effect.p_below() == pytest.approx(0.03125)
    assert effect.interval(0.95).high == pytest.approx(math.log(0.5))
    assert effect.interval(0.95).low == -math.inf


def test_five_pairs_have_no_interval_by_order() -> None:
    interval = ratios([1.0] * 5, [math.inf] * 5).interval(0.95)
    assert (interval.low, interval.high) == (-math.inf, math.inf)


def test_a_pair_that_failed_in_both_arms_counts_against_whatever_is_claimed() -> None:
    effect = ratios([1.0] * 7 + [math.inf], [0.5] * 7 + [math.inf])
    assert effect.p_below() == pytest.approx(9 / 256)
    assert effect.p_above() == pytest.approx(1.0)
    assert effect.interval(0.95).high == math.inf
    assert effect.point == pytest.approx(math.log(0.5))


def test_failures_in_b_alone_are_an_infinite_ratio() -> None:
    effect = ratios([1.0] * 6, [math.inf] * 6)
    assert effect.ratio == math.inf
    assert effect.ratio_interval().low == math.inf
    assert effect.sd is None


def test_pairs_that_all_agree_are_judged_by_their_number() -> None:
    same = differences([1.0] * 8, [1.0] * 8)
    assert (same.point, same.sd, same.by_order) == (0.0, 0.0, True)
    assert same.interval().holds(0.0)
    assert same.equivalence_p(0.05) == pytest.approx(1 / 256)
    assert differences([1.0] * 3, [1.0] * 3).equivalence_p(0.05) > 0.05


def test_equivalence_needs_the_90_percent_interval_inside_the_margin() -> None:
    effect = ratios([1.0] * 6, [0.98, 1.03, 1.0, 0.97, 1.02, 1.01])
    inside = effect.interval(0.90)
    margin = max(abs(inside.low), abs(inside.high))
    assert effect.equivalence_p(margin * 1.001) < 0.05 < effect.equivalence_p(margin * 0.999)


def test_not_significant_is_not_equal() -> None:
    effect = ratios([1.0] * 4, [0.5, 1.9, 0.7, 1.5])
    assert 2 * min(effect.p_below(), effect.p_above()) > 0.05
    assert effect.equivalence_p(math.log(1.25)) > 0.05


def test_the_pooled_ratio_finds_a_shift_in_all_requests() -> None:
    a = [[1.0 + 0.01 * ((7 * i + j) % 50) for i in range(200)] for j in range(5)]
    b = [[2 * x for x in run] for run in a]
    effect = pooled_ratio(a, b, 0.95)
    assert effect is not None
    assert effect.ratio == pytest.approx(2.0)


def test_the_pooled_ratio_is_silent_where_failures_reach_it_or_pairs_are_few() -> None:
    assert pooled_ratio([[1.0] * 10] * 2, [[1.0] * 10] * 2, 0.5) is None
    failed = [[1.0] * 10, [1.0] * 10, [math.inf] * 10]
    assert pooled_ratio([[1.0] * 10] * 3, failed, 0.95) is None


def test_what_are_no_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        ratios([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="no pairs"):
        differences([], [])
    with pytest.raises(ValueError, match="positive"):
        ratios([0.0], [1.0])
    with pytest.raises(ValueError, match="finite"):
        differences([math.inf], [1.0])


def test_failures_on_both_sides_cancel_in_the_middle() -> None:
    assert ratios([1.0, math.inf], [math.inf, 1.0]).ratio == 1.0
    assert ratios([1.0, 1.0], [math.inf, math.inf]).ratio == math.inf
    assert ratios([1.0, 1.0], [1.0, math.inf]).ratio == math.inf


@given(
    st.lists(
        st.tuples(*[st.one_of(st.floats(1e-3, 1e3), st.just(math.inf))] * 2),
        min_size=1,
        max_size=10,
    )
)
def test_no_mix_of_failures_makes_a_figure_that_is_no_number(
    pairs: list[tuple[float, float]],
) -> None:
    effect = ratios([a for a, _ in pairs], [b for _, b in pairs])
    interval = effect.ratio_interval()
    assert not math.isnan(effect.ratio)
    assert interval.low <= interval.high
    assert 0 <= effect.p_below() <= 1
    assert 0 <= effect.p_above() <= 1
