"""Inside one run: the end of warm-up, and sections."""

import math
import random

import pytest

from splitserve.lab.stats.window import sectioned, still_falls, warmup_end


def noise(n: int) -> list[float]:
    draw = random.Random(5)
    return [1 + draw.gauss(0, 0.05) for _ in range(n)]


def test_a_slow_start_is_cut_off() -> None:
    values = noise(400)
    for i in range(40):
        values[i] += 3 * (1 - i / 40)
    end = warmup_end(values)
    assert end is not None
    assert 30 <= end <= 60


def test_a_settled_run_keeps_nearly_all() -> None:
    end = warmup_end(noise(400))
    assert end is not None
    assert end < 100


def test_a_run_that_never_settles_or_is_tiny_says_so() -> None:
    assert warmup_end([float(i) for i in range(100, 0, -1)] + [0.0] * 40) is None
    assert warmup_end([1.0] * 20) is None


def test_failures_while_warming_up_are_cut_off_too() -> None:
    assert warmup_end([math.inf] * 10 + noise(200)) in range(5, 60)


def test_sections_enclose_the_whole_runs_quantile() -> None:
    values = noise(1000)
    found = sectioned(values, 0.9)
    assert found is not None
    assert found.holds(sorted(values)[899])
    assert 0 < found.high - found.low < 0.1


@pytest.mark.parametrize("p", [0.99, 0.999])
def test_sections_that_are_too_short_for_the_quantile_give_none(p: float) -> None:
    assert sectioned(noise(500), p) is None


def test_sections_with_failures_give_none() -> None:
    assert sectioned([math.inf] * 100 + noise(900), 0.5) is None


def test_only_a_first_half_that_lies_higher_still_falls() -> None:
    falling = [value + 2 - 2 * at / 200 for at, value in enumerate(noise(200))]
    assert still_falls(falling)
    assert not still_falls(falling[::-1])
    assert not still_falls(noise(200))
    assert not still_falls(noise(7))


def test_a_queue_in_its_steady_state_is_rarely_taken_for_a_warm_up() -> None:
    draw = random.Random(3)
    late = sum(
        warmup_end(waits) is None and still_falls(waits)
        for waits in (queueing(draw, 400) for _ in range(120))
    )
    assert late <= 6


def queueing(draw: random.Random, n: int) -> list[float]:
    """Times in an M/M/1 queue at 0.8, long after its start."""
    wait_s, found = 0.0, []
    for _ in range(n + 200):
        service_s = draw.expovariate(1)
        found.append(wait_s + service_s)
        wait_s = max(0.0, wait_s + service_s - draw.expovariate(0.8))
    return found[200:]
