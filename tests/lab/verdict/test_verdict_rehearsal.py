"""The whole inference on simulated studies, at reduced size; bounds are those of the binomial."""

import math

import pytest

from splitserve.lab.stats.simulate import StudyModel
from splitserve.lab.verdict.outcome import Outcome
from splitserve.lab.verdict.rehearsal import Rehearsal, rehearse

STUDIES = 120
SAME = StudyModel(requests=200)
BETTER = StudyModel(requests=200, tail_itl_ratio=0.7)


def slack(share: float) -> float:
    """Three deviations of a share of STUDIES: a right engine fails once in a thousand seeds."""
    return 3 * math.sqrt(share * (1 - share) / STUDIES)


@pytest.fixture(scope="module")
def same() -> Rehearsal:
    return rehearse(SAME, STUDIES, seed=11)


@pytest.fixture(scope="module")
def better() -> Rehearsal:
    return rehearse(BETTER, STUDIES, seed=12)


def test_equal_arms_are_adopted_in_at_most_five_of_a_hundred(same: Rehearsal) -> None:
    assert same.share(Outcome.ADOPT) <= 0.05
    assert same.rejected / STUDIES <= 0.05 + slack(0.05)


def test_equal_arms_whose_runs_are_noisy_are_adopted_in_at_most_five_of_a_hundred() -> None:
    noisy = rehearse(StudyModel(requests=100, run_sd=0.4, correlation=0.0), STUDIES, seed=14)
    assert noisy.share(Outcome.ADOPT) <= 0.05
    assert noisy.rejected / STUDIES <= 0.05 + slack(0.05)
    assert noisy.share(Outcome.INCONCLUSIVE) > 0.5


def test_a_third_less_tail_itl_is_found_in_eighty_of_a_hundred(better: Rehearsal) -> None:
    assert better.share(Outcome.ADOPT) >= 0.80


@pytest.mark.parametrize("quantity", ["tail_itl", "ttft", "attainment"])
def test_intervals_of_equal_arms_hold_the_truth(same: Rehearsal, quantity: str) -> None:
    assert abs(same.coverage(quantity) - 0.95) <= 0.02 + slack(0.95)


@pytest.mark.parametrize("quantity", ["tail_itl", "ttft"])
def test_intervals_of_unequal_arms_hold_the_truth(better: Rehearsal, quantity: str) -> None:
    assert abs(better.coverage(quantity) - 0.95) <= 0.02 + slack(0.95)


def test_a_faster_split_that_fails_two_of_a_hundred_requests_is_not_adopted() -> None:
    found = rehearse(StudyModel(requests=200, tail_itl_ratio=0.6, error_b=0.02), 40, seed=13)
    assert found.share(Outcome.ADOPT) == 0
    assert found.covered == {}


def test_a_rehearsal_is_the_same_from_the_same_seed() -> None:
    model = StudyModel(pairs=4, aa_pairs=2, requests=100)
    assert rehearse(model, 10, seed=3) == rehearse(model, 10, seed=3)
    assert sum(rehearse(model, 10, seed=3).outcomes.values()) == 10
