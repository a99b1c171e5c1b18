"""A number carries what it rests on, or says why it is none."""

import math

import pytest

from splitserve.lab.report import estimates
from splitserve.lab.report.figure import Figure, number
from splitserve.lab.stats.interval import Interval
from splitserve.lab.stats.paired import differences, ratios
from splitserve.lab.stats.shares import Count


def test_a_figure_shows_unit_interval_n_and_method() -> None:
    figure = Figure(41.234, "ms", 8, "runs", "typical run", Interval(38.0, 44.0, 0.95))
    assert str(figure) == "41.23 ms ([38, 44] 95 %; n = 8 runs; typical run)"


def test_a_sample_too_small_is_refused_with_what_it_needs() -> None:
    figure = estimates.quantile_of_runs([[0.1] * 199, [0.1] * 300], 0.95, "ms", 1000)
    assert figure.text == "refused (n too small: 199 of 200 needed)"
    assert figure.value is None


def test_a_refused_figure_says_no_more_than_why() -> None:
    assert estimates.quantile_of_runs([[0.1] * 199], 0.95, "ms").detail == ""


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (-math.inf, math.inf, "no bound (n too small)"),
        (0.0, math.inf, "no bound (n too small)"),
        (0.5, math.inf, "[0.5, ∞] 95 %"),
        (-2.0, 3.0, "[-2, 3] 95 %"),
    ],
    ids=["difference", "ratio", "half", "both"],
)
def test_an_interval_without_ends_is_said_in_words(low: float, high: float, told: str) -> None:
    figure = Figure(0.0, "pp", 2, "pairs", "sign test", Interval(low, high, 0.95))
    assert figure.detail == f"{told}; n = 2 pairs; sign test"
    assert figure.brief == f"0 pp, {told}"


def test_the_least_sample_that_carries_a_quantile_is_taken() -> None:
    figure = estimates.quantile_of_runs([[0.1] * 200, [0.1] * 200], 0.95, "ms", 1000)
    assert figure.text == "100 ms"
    assert figure.n == 2
    assert figure.of == "runs of 200"


@pytest.mark.parametrize("samples", [[], [[]], [[0.1] * 20, []]], ids=["none", "empty", "part"])
def test_without_a_sample_nothing_was_measured(samples: list[list[float]]) -> None:
    assert str(estimates.quantile_of_runs(samples, 0.5, "ms")) == "not measured"


def test_failures_make_the_typical_run_infinite_and_are_counted() -> None:
    sample = [0.1] * 5 + [math.inf] * 15
    figure = estimates.quantile_of_runs([sample, [0.1] * 20], 0.5, "ms")
    assert figure.text == "∞ (15 failures)"
    assert figure.interval is not None
    assert figure.interval.high == math.inf


def test_the_run_is_the_unit() -> None:
    figure = estimates.quantile_of_runs([[0.1] * 20, [0.4] * 20], 0.5, "ms", 1000)
    assert figure.value == pytest.approx(200)
    assert figure.interval is not None
    assert figure.interval.low < 100


def test_gaps_of_no_time_have_a_mean() -> None:
    figure = estimates.typical_run([0.0, 0.2], "s")
    assert figure.value == pytest.approx(0.1)
    assert figure.method == "mean of runs"


def test_one_run_has_a_value_and_no_interval() -> None:
    assert str(estimates.typical_run([0.25], "s")) == "0.25 s (n = 1 runs; typical run)"


def test_shares_are_percent_of_all_requests() -> None:
    figure = estimates.share([Count(1, 100), Count(2, 100)])
    assert figure.text == "1.5 %"
    assert figure.of == "requests in 2 runs"


def test_effects_are_ratios_or_percentage_points() -> None:
    ratio = estimates.effect(ratios([1.0, 1.0, 1.0], [0.5, 0.51, 0.49]))
    assert ratio.text.startswith("0.49")
    share = estimates.effect(differences([0.5, 0.5, 0.5], [0.6, 0.61, 0.59]))
    assert share.text == "10 pp"
    failed = estimates.effect(ratios([1.0, 1.0], [math.inf, math.inf]))
    assert failed.text == "∞ (failures)"
    assert failed.method == "paired, sign test"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1234.5, "1234"),
        (0.012345, "0.01235"),
        (1e-7, "1e-07"),
        (12345678.0, "1.23e+07"),
        (-math.inf, "-∞"),
        (99.0, "99"),
    ],
)
def test_numbers_have_four_digits(value: float, text: str) -> None:
    assert number(value) == text
