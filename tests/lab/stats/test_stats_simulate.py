"""Simulated studies are what their model says."""

import numpy as np
import pytest

from splitserve.lab.stats.simulate import StudyModel, simulate

SMALL = StudyModel(pairs=4, aa_pairs=2, requests=200)


def test_the_same_seed_gives_the_same_studies() -> None:
    first, again, other = (simulate(SMALL, 3, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.target.ttft_s, again.target.ttft_s)
    assert not np.array_equal(first.target.ttft_s, other.target.ttft_s)


def test_shapes_are_studies_by_pairs_by_arms_across_batches() -> None:
    made = simulate(SMALL, 30, 1)
    assert made.target.good.shape == (30, 4, 2)
    assert made.control.errors.shape == (30, 2, 2)
    assert made.positions == (0.5, 2.5, 4.5, 6.5)


def test_the_mean_log_ratio_is_the_models() -> None:
    made = simulate(StudyModel(pairs=4, aa_pairs=2, requests=200, tail_itl_ratio=0.7), 200, 3)
    logs = np.log(made.target.tail_itl_s[..., 1] / made.target.tail_itl_s[..., 0])
    assert logs.mean() == pytest.approx(np.log(0.7), abs=4 * logs.std() / np.sqrt(logs.size))
    same = np.log(made.control.tail_itl_s[..., 1] / made.control.tail_itl_s[..., 0])
    assert same.mean() == pytest.approx(0, abs=4 * same.std() / np.sqrt(same.size))


def test_pairing_takes_out_most_of_the_variance() -> None:
    made = simulate(StudyModel(pairs=4, aa_pairs=1, requests=200, drift=0), 200, 4)
    logs = np.log(made.target.ttft_s)
    paired = (logs[..., 1] - logs[..., 0]).var()
    unpaired = 2 * logs.var()
    assert paired < 0.6 * unpaired


def test_failures_reach_the_quantile_when_they_are_many() -> None:
    made = simulate(StudyModel(pairs=2, aa_pairs=1, requests=200, error_b=0.2, burst=0), 20, 5)
    assert np.isinf(made.target.ttft_s[..., 1]).all()
    assert np.isfinite(made.target.ttft_s[..., 0]).all()
    assert made.target.errors[..., 1].mean() == pytest.approx(40, rel=0.1)


def test_bursts_make_runs_differ_more_in_errors() -> None:
    def spread(burst: float) -> float:
        model = StudyModel(pairs=4, aa_pairs=1, requests=200, error_a=0.05, burst=burst)
        return float(simulate(model, 50, 6).target.errors[..., 0].std())

    assert spread(1.0) > 2 * spread(0.0)
