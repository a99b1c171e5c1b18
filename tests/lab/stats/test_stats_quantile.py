"""Quantiles: always a value that occurred, failures at infinity, refusal of small samples."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.lab.stats.quantile import (
    interval_ranks,
    inverse_cdf,
    linear,
    quantile,
    rank,
    smallest_bounded,
    smallest_sample,
)

ONE_STALL = [20.0] * 99 + [500.0]
TIMES = st.lists(st.one_of(st.floats(1e-6, 1e6), st.just(math.inf)), min_size=1, max_size=200)


def test_one_stall_of_a_hundred_is_above_its_p99_and_does_not_bend_it() -> None:
    assert inverse_cdf(ONE_STALL, 0.99) == 20.0
    assert linear(ONE_STALL, 0.99) == pytest.approx(24.8)


def test_linear_gives_what_other_tools_print() -> None:
    sample = [40.0, 10.0, 30.0, 20.0]
    assert [linear(sample, p) for p in (0.5, 0.9, 0.99)] == pytest.approx([25.0, 37.0, 39.7])


def test_one_value_is_every_quantile_and_none_is_none() -> None:
    assert (quantile([7.0], 0.99).value, linear([7.0], 0.99)) == (7.0, 7.0)
    assert (quantile([], 0.5).value, linear([], 0.5)) == (None, None)
    assert quantile([], 0.5).text() == "none"


def test_failures_stand_at_the_end_and_are_told() -> None:
    found = quantile([1.0] * 97 + [math.inf] * 3, 0.98)
    assert (found.value, found.failures, found.text("s")) == (math.inf, 3, "∞ (3 failures)")
    assert quantile([1.0] * 97 + [math.inf] * 3, 0.97).text("s") == "1s"
    assert linear([1.0] * 97 + [math.inf] * 3, 0.97) == math.inf


@pytest.mark.parametrize(
    ("p", "smallest"), [(0.5, 20), (0.9, 100), (0.95, 200), (0.99, 1000), (0.999, 10_000)]
)
def test_a_quantile_is_refused_below_ten_values_in_its_tail(p: float, smallest: int) -> None:
    assert smallest_sample(p) == smallest
    assert quantile([1.0] * smallest, p).carried
    assert not quantile([1.0] * (smallest - 1), p).carried


@pytest.mark.parametrize(("p", "n"), [(0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3688)])
def test_below_this_size_no_interval_has_an_upper_end(p: float, n: int) -> None:
    assert smallest_bounded(p) == n
    assert interval_ranks(n - 1, p) is None
    assert interval_ranks(n, p) is not None
    assert quantile([1.0] * (n - 1), p).interval is None


@pytest.mark.parametrize(
    ("n", "p", "ranks"),
    [
        (500, 0.95, (465, 485)),
        (1000, 0.95, (936, 964)),
        (5000, 0.95, (4719, 4781)),
        (500, 0.99, (490, 500)),
        (1000, 0.99, (983, 997)),
        (5000, 0.99, (4936, 4964)),
    ],
)
def test_interval_ranks_are_those_of_the_binomial_table(
    n: int, p: float, ranks: tuple[int, int]
) -> None:
    assert interval_ranks(n, p) == ranks
    found = quantile([float(i) for i in range(1, n + 1)], p).interval
    assert found is not None
    assert (found.low, found.high) == ranks


def test_ranks_are_exact_where_floats_are_not() -> None:
    assert 0.07 * 100 > 7
    assert rank(100, 0.07) == 7


@given(TIMES, st.sampled_from([0.01, 0.07, 0.5, 0.9, 0.95, 0.99, 1.0]))
def test_a_quantile_occurred_and_has_its_share_at_or_below(values: list[float], p: float) -> None:
    found = inverse_cdf(values, p)
    below = sum(v < found for v in values)
    assert found in values
    assert below < p * len(values) <= sum(v <= found for v in values) + 1e-9


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        quantile([1.0, math.nan], 0.5)
    with pytest.raises(ValueError, match="no quantile"):
        rank(10, 0.0)
    with pytest.raises(ValueError, match="no quantile"):
        inverse_cdf([], 0.5)
    with pytest.raises(ValueError, match="no sample"):
        smallest_sample(1.0)
