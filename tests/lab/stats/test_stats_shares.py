"""Shares: bounds that hold for no events, for few, and for events in bursts."""

from math import comb

import pytest

from splitserve.lab.stats.shares import (
    Count,
    clopper_pearson,
    difference,
    difference_upper,
    mcnemar,
    pooled,
    share_lower,
    share_upper,
    wilson,
)


def test_no_error_in_300_proves_less_than_one_percent_and_no_more() -> None:
    assert share_upper([Count(0, 300)]) == pytest.approx(1 - 0.05 ** (1 / 300))
    assert clopper_pearson(Count(0, 300)).high == pytest.approx(1 - 0.025 ** (1 / 300))
    assert share_upper([Count(0, 3000)]) < 0.001


def test_newcombe_gives_his_published_interval() -> None:
    # Newcombe 1998, method 10: 56/70 against 48/80 gives 0.0524 to 0.3339.
    found = difference(Count(48, 80), Count(56, 70))
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_wilson_gives_a_known_interval_and_stays_inside_zero_and_one() -> None:
    # Newcombe 1998: 81 of 263 gives 0.2553 to 0.3662.
    found = wilson(Count(81, 263))
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(Count(0, 10)).low == 0.0
    assert wilson(Count(10, 10)).high == 1.0


@pytest.mark.parametrize("share", [0.002, 0.01, 0.05, 0.3, 0.5, 0.97])
def test_the_exact_interval_never_covers_less_than_it_says(share: float) -> None:
    n = 60
    covered = sum(
        comb(n, k) * share**k * (1 - share) ** (n - k)
        for k in range(n + 1)
        if clopper_pearson(Count(k, n)).holds(share)
    )
    assert covered >= 0.95


def test_errors_in_one_burst_prove_less_than_the_same_errors_spread_out() -> None:
    spread = [Count(5, 500) for _ in range(8)]
    burst = [Count(40, 500)] + [Count(0, 500) for _ in range(7)]
    assert pooled(spread) == pooled(burst)
    assert share_upper(burst) > 1.5 * share_upper(spread)
    clean = [Count(0, 500) for _ in range(8)]
    assert difference_upper(clean, burst) > 1.5 * difference_upper(clean, spread)


def test_equal_runs_still_leave_the_doubt_of_few_requests() -> None:
    assert difference_upper([Count(0, 100)] * 4, [Count(0, 100)] * 4) == pytest.approx(
        1 - 0.05 ** (1 / 400)
    )


def test_the_lower_bound_mirrors_the_upper() -> None:
    runs = [Count(98, 100), Count(97, 100), Count(99, 100)]
    assert share_lower(runs) < 0.98 < share_upper(runs)
    assert share_lower([Count(300, 300)]) == pytest.approx(0.05 ** (1 / 300))


def test_the_same_requests_in_both_arms_are_judged_by_those_that_disagree() -> None:
    assert mcnemar(0, 6) == pytest.approx(2 / 64)
    assert mcnemar(3, 3) == 1.0
    assert mcnemar(0, 0) == 1.0


@pytest.mark.parametrize(("hits", "total"), [(-1, 5), (6, 5), (0, 0)])
def test_what_is_no_count_is_refused(hits: int, total: int) -> None:
    with pytest.raises(ValueError, match="no count"):
        Count(hits, total)


def test_runs_that_are_no_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        difference_upper([Count(0, 5)] * 2, [Count(0, 5)])
