"""What a line learns of a law, and how fast it forgets one."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.ids import WorkerId
from splitserve.router.policy.curves import ENOUGH, MEMORY, Curves, Line

A, B = WorkerId("a"), WorkerId("b")

tokens = st.integers(0, 100_000)
seconds = st.floats(0, 1000, allow_subnormal=False)
bases, slopes = st.floats(0.001, 0.5), st.floats(1e-5, 1e-2)


def follow(line: Line, base: float, slope: float, points: int, seed: int, noise: float) -> None:
    """Points of a law, each time wrong by at most the share ``noise``."""
    rng = random.Random(seed)
    for _ in range(points):
        x = rng.randint(1, 2000)
        line.add(x, (base + slope * x) * rng.uniform(1 - noise, 1 + noise))


@settings(max_examples=60)
@given(st.lists(st.tuples(tokens, seconds), min_size=ENOUGH, max_size=60), tokens)
def test_a_time_is_never_negative_and_never_falls_with_the_length(
    points: list[tuple[int, float]], x: int
) -> None:
    line = Line()
    for point in points:
        line.add(*point)
    assert line.known
    assert 0 <= line.at(0) <= line.at(x) <= line.at(x + 1)
    assert line.pace >= 0


@settings(max_examples=40)
@given(bases, slopes, st.integers(0, 2**32))
def test_a_line_recovers_a_law_under_noise(base: float, slope: float, seed: int) -> None:
    line = Line()
    follow(line, base, slope, 150, seed, noise=0.2)
    for x in (200, 1000, 2000):
        assert line.at(x) == pytest.approx(base + slope * x, rel=0.2)


@settings(max_examples=40)
@given(bases, slopes, st.sampled_from([0.7, 1.5]), st.integers(0, 2**32))
def test_a_line_forgets_a_law_that_has_changed(
    base: float, slope: float, change: float, seed: int
) -> None:
    line = Line()
    follow(line, base, slope, 300, seed, noise=0.1)
    follow(line, base * change, slope * change, 8 * MEMORY, seed + 1, noise=0.1)
    for x in (200, 1000, 2000):
        assert line.at(x) == pytest.approx((base + slope * x) * change, rel=0.2)


@settings(max_examples=40)
@given(bases, slopes, st.sampled_from([0.01, 0.1, 3.0, 50.0]), st.integers(0, 2**32))
def test_a_large_change_is_learnt_from_a_few_points(
    base: float, slope: float, change: float, seed: int
) -> None:
    line = Line()
    follow(line, base, slope, 300, seed, noise=0.1)
    follow(line, base * change, slope * change, 3 * ENOUGH, seed + 1, noise=0.1)
    for x in (500, 1000, 2000):
        assert line.at(x) == pytest.approx((base + slope * x) * change, rel=0.3)


@settings(max_examples=40)
@given(bases, slopes, st.sets(st.integers(ENOUGH, 60), max_size=6), st.integers(0, 2**32))
def test_a_few_wild_points_hardly_move_a_line(
    base: float, slope: float, wild: set[int], seed: int
) -> None:
    line, rng = Line(), random.Random(seed)
    wild |= {0, 1}  # as a worker's first prompts often are
    for at in range(61):
        x = rng.randint(1, 2000)
        line.add(x, (base + slope * x) * (50 if at in wild else 1))
    for x in (500, 1000):
        assert line.at(x) == pytest.approx(base + slope * x, rel=0.01)


def test_nothing_is_known_before_there_are_enough_points() -> None:
    line = Line()
    follow(line, 0.1, 0.001, ENOUGH - 1, seed=1, noise=0)
    assert (line.known, line.at(100), line.pace) == (False, 0.0, 0.0)
    line.add(100, 0.2)
    assert line.known


def test_prompts_of_one_length_are_taken_to_grow_in_proportion() -> None:
    line = Line()
    for _ in range(2 * ENOUGH):
        line.add(100, 0.5)
    assert line.at(100) == pytest.approx(0.5)
    assert line.at(400) == pytest.approx(2.0)


def test_times_that_do_not_depend_on_tokens_are_just_their_mean() -> None:
    line = Line()
    for _ in range(2 * ENOUGH):
        line.add(0, 0.25)
    assert line.at(0) == line.at(1000) == pytest.approx(0.25)


def test_a_worker_has_its_own_line_and_until_then_that_of_all() -> None:
    curves = Curves()
    assert curves.of(A) is None
    for x in range(1, ENOUGH + 1):
        curves.add(A, x, x * 0.001)
    of_all = curves.of(B)
    assert of_all is not None
    assert of_all.at(100) == pytest.approx(0.1)
    for x in range(1, 4 * ENOUGH):
        curves.add(B, x, x * 0.01)
    own, other = curves.of(B), curves.of(A)
    assert own is not None
    assert other is not None
    assert own.at(100) == pytest.approx(1.0)
    assert other.at(100) == pytest.approx(0.1)
