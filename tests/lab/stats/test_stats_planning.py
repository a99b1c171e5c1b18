"""Order of runs, correction for two hypotheses, and how much to measure."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.lab.stats.design import interleaved
from splitserve.lab.stats.holm import holm
from splitserve.lab.stats.power import MOST_PAIRS, pairs_needed, power, requests_needed


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_every_pair_runs_each_arm_once_and_blocks_cancel_a_linear_drift(
    pairs: int, seed: int
) -> None:
    order = interleaved(pairs, seed)
    assert [slot.position for slot in order] == list(range(2 * pairs))
    assert Counter((s.pair, s.arm) for s in order) == Counter(
        (j, arm) for j in range(pairs) for arm in "AB"
    )
    for start in range(0, 2 * (pairs - pairs % 2), 4):
        block = order[start : start + 4]
        assert sum(s.position * (1 if s.arm == "A" else -1) for s in block) == 0


def test_the_order_comes_from_the_seed_and_both_blocks_occur() -> None:
    assert interleaved(8, 7) == interleaved(8, 7)
    firsts = {interleaved(1, seed)[0].arm for seed in range(20)}
    assert firsts == {"A", "B"}
    with pytest.raises(ValueError, match="at least one"):
        interleaved(0, 1)


def test_holm_rejects_step_by_step() -> None:
    both = holm({"tail": 0.02, "ttft": 0.04})
    assert [both[n].rejected for n in ("tail", "ttft")] == [True, True]
    stopped = holm({"tail": 0.03, "ttft": 0.04})
    assert [stopped[n].rejected for n in ("tail", "ttft")] == [False, False]
    assert stopped["ttft"].adjusted == pytest.approx(0.06)


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_never_kinder_than_no_correction_nor_harsher_than_bonferroni(
    p_values: dict[str, float],
) -> None:
    for name, found in holm(p_values).items():
        assert p_values[name] <= found.adjusted <= min(1.0, len(p_values) * p_values[name])


def test_power_is_that_of_the_noncentral_t() -> None:
    # A textbook case: d = 0.5 deviations, 34 pairs, two-sided 5 %: power 0.808.
    assert power(34, 0.5, 1.0) == pytest.approx(0.808, abs=0.001)
    assert pairs_needed(0.5, 1.0) == 34


@given(st.floats(0.05, 2.0), st.floats(0.05, 2.0))
def test_the_pairs_needed_are_the_fewest_that_do(effect: float, sd: float) -> None:
    needed = pairs_needed(effect, sd)
    assert needed is not None
    assert power(needed, effect, sd) >= 0.8
    assert needed == 3 or power(needed - 1, effect, sd) < 0.8


def test_nothing_to_see_needs_more_pairs_than_there_are() -> None:
    assert pairs_needed(0.0, 1.0) is None
    assert pairs_needed(1e-4, 1.0) is None
    assert power(MOST_PAIRS, 100.0, 1.0) == 1.0
    assert power(5, 1.0, 0.0) == 1.0
    assert power(1, 1.0, 1.0) == 0.0
    with pytest.raises(ValueError, match="negative"):
        power(5, 1.0, -1.0)


def test_a_rare_event_needs_three_over_its_share_requests() -> None:
    assert requests_needed(0.01) == 299
    assert requests_needed(0.001) == 2995
    with pytest.raises(ValueError, match="no share"):
        requests_needed(0.0)
