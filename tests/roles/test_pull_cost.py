"""When the start of a prompt is computed although it could be read: by what was learnt only."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.ids import WorkerId
from splitserve.roles.pull_cost import (
    BELIEVED_S,
    LEAST_PULLS,
    LEAST_S,
    MARGIN,
    PULLS,
    ComputeRate,
    PullCost,
    PullTime,
    computing_is_cheaper,
)

D = WorkerId("d")
SECONDS = st.floats(0, 1e4)
MB = 1_000_000


@given(SECONDS, SECONDS)
def test_computing_is_taken_only_where_it_is_cheaper_by_the_margin(
    pull_s: float, compute_s: float
) -> None:
    rounding = 1e-9 * (1 + pull_s)
    if computing_is_cheaper(pull_s, compute_s):
        assert pull_s >= compute_s + LEAST_S - rounding
        assert pull_s >= compute_s * (1 + MARGIN) - rounding
        assert pull_s > LEAST_S
    else:
        assert pull_s <= compute_s + max(LEAST_S, compute_s * MARGIN) + rounding


@given(SECONDS, SECONDS, SECONDS)
def test_a_dearer_read_is_never_preferred_to_a_cheaper_one(
    pull_s: float, more_s: float, compute_s: float
) -> None:
    if computing_is_cheaper(pull_s, compute_s):
        assert computing_is_cheaper(pull_s + more_s, compute_s)
        assert not computing_is_cheaper(pull_s, compute_s + pull_s)


@given(st.none() | SECONDS, st.none() | SECONDS)
def test_what_is_not_known_is_read(pull_s: float | None, compute_s: float | None) -> None:
    if pull_s is None or compute_s is None:
        assert not computing_is_cheaper(pull_s, compute_s)


@given(
    st.lists(st.integers(1, 10**10), min_size=LEAST_PULLS, max_size=PULLS, unique=True),
    st.floats(0, 10),
    st.floats(1e-11, 1e-6),
    st.integers(1, 10**10),
)
def test_a_fixed_time_and_a_rate_are_found(
    sizes: list[int], fixed_s: float, per_byte_s: float, asked: int
) -> None:
    time = PullTime()
    for size in sizes:
        time.note(size, fixed_s + size * per_byte_s, 0.0)
    # Two sizes that differ by a byte tell the rate badly where the fixed time is long.
    slack = 1e-6 + 1e-6 * max(asked, *sizes) / min_gap(sizes)
    expected = fixed_s + asked * per_byte_s
    assert time.seconds(asked, 0.0) == pytest.approx(expected, rel=1e-3, abs=slack)


def min_gap(sizes: list[int]) -> int:
    ordered = sorted(sizes)
    return min(b - a for a, b in pairwise(ordered))


@given(st.lists(st.tuples(st.integers(1, 10**9), SECONDS), min_size=LEAST_PULLS, max_size=20))
def test_no_reads_lead_to_a_negative_time(reads: list[tuple[int, float]]) -> None:
    time = PullTime()
    for nbytes, seconds in reads:
        time.note(nbytes, seconds, 0.0)
    small, large = time.seconds(1, 0.0), time.seconds(10**9, 0.0)
    assert small is not None
    assert large is not None
    assert 0 <= small <= large


def test_one_read_that_opened_the_path_is_not_believed() -> None:
    time = PullTime()
    time.note(MB, 38.0, 0.0)
    assert time.seconds(MB, 0.0) is None
    for _ in range(LEAST_PULLS):
        time.note(MB, 0.001, 0.0)
    assert time.seconds(MB, 0.0) == pytest.approx(0.001)


def test_a_path_that_became_slow_is_noticed() -> None:
    time = PullTime()
    for _ in range(2 * PULLS):
        time.note(MB, 0.001, 0.0)
    for _ in range(PULLS // 2 + 1):
        time.note(MB, 2.0, 0.0)
    assert time.seconds(MB, 0.0) == pytest.approx(2.0)


class TestComputeRate:
    def test_steps_that_bring_what_they_compute(self) -> None:
        rate = ComputeRate()
        assert rate.seconds(1) is None
        rate.stepped(100, 0.0, 0.1, told=False, goes_on=False)
        rate.stepped(300, 5.0, 5.2, told=True, goes_on=False)
        assert rate.seconds(1000) == pytest.approx(1.0)

    def test_a_step_that_brings_what_the_one_before_began(self) -> None:
        rate = ComputeRate()
        rate.stepped(0, 0.0, 0.001, told=False, goes_on=True)
        rate.stepped(100, 0.001, 0.1, told=False, goes_on=True)
        rate.stepped(200, 0.19, 0.2, told=True, goes_on=True)
        assert rate.seconds(1000) == pytest.approx(1.0)

    def test_steps_without_prompts_do_not_count(self) -> None:
        rate = ComputeRate()
        rate.stepped(100, 0.0, 0.1, told=True, goes_on=True)
        rate.stepped(100, 0.1, 3.0, told=True, goes_on=True)
        rate.stepped(200, 3.0, 3.1, told=True, goes_on=True)
        assert rate.seconds(1000) == pytest.approx(1.0)

    def test_what_was_computed_before_a_restart_does_not_count(self) -> None:
        rate = ComputeRate()
        rate.restart(1_000_000)
        rate.stepped(1_000_100, 7.0, 7.1, told=True, goes_on=False)
        assert rate.seconds(1000) == pytest.approx(1.0)

    def test_later_steps_weigh_more(self) -> None:
        rate = ComputeRate()
        for step in range(100):
            rate.stepped(100 * (step + 1), 0.0, 0.1, told=True, goes_on=False)
        for step in range(100, 200):
            rate.stepped(100 * (step + 1), 0.0, 0.5, told=True, goes_on=False)
        assert rate.seconds(100) == pytest.approx(0.5, rel=0.01)

    def test_time_that_did_not_pass_is_no_rate(self) -> None:
        rate = ComputeRate()
        rate.stepped(100, 0.0, 0.0, told=True, goes_on=False)
        assert rate.seconds(100) is None


class TestPullCost:
    def known(self) -> PullCost:
        """A thousand tokens are computed in a second, and MB a second is read."""
        cost = PullCost()
        cost.compute.stepped(1000, 0.0, 1.0, told=True, goes_on=False)
        for _ in range(LEAST_PULLS):
            cost.pulled(D, MB, 1.0, 10.0)
        return cost

    def test_a_dear_read_is_skipped_and_counted(self) -> None:
        cost = self.known()
        assert cost.skips(D, 2 * MB, 1000, 0, 10.0)
        assert not cost.skips(D, MB, 1000, 0, 10.0)
        assert cost.skipped == 1

    def test_a_queue_makes_reading_worth_its_time(self) -> None:
        cost = self.known()
        assert not cost.skips(D, 2 * MB, 1000, 1000, 10.0)

    def test_another_worker_is_not_judged_by_it(self) -> None:
        assert not self.known().skips(WorkerId("e"), 2 * MB, 1000, 0, 10.0)

    def test_a_read_of_nothing_teaches_nothing(self) -> None:
        cost = self.known()
        for _ in range(PULLS):
            cost.pulled(D, 0, 9.0, 10.0)
        assert not cost.skips(D, MB, 1000, 0, 10.0)

    def test_after_a_while_it_is_tried_again(self) -> None:
        cost = self.known()
        assert not cost.skips(D, 2 * MB, 1000, 0, 10.0 + BELIEVED_S + 1)
        cost.pulled(D, 2 * MB, 2.0, 11.0 + BELIEVED_S)
        assert cost.skips(D, 2 * MB, 1000, 0, 12.0 + BELIEVED_S)
