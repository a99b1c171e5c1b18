"""Readings of ``bench turns`` over its conversations."""

import pytest

from splitserve.bench.turns import Asked, Turn, ratio_readings, turn_readings


def turn(number: int, ttft_s: float, fresh_s: float, computed: int = 80, pulled: int = 16) -> Turn:
    prompt = 96 * number - 32
    return Turn(number, Asked(prompt, computed, pulled, ttft_s), Asked(prompt, prompt, 0, fresh_s))


TALKS = [
    [turn(1, 0.1, 0.1, 64, 0), turn(2, 0.10, 0.2), turn(3, 0.11, 0.44)],
    [turn(1, 0.2, 0.1, 64, 0), turn(2, 0.20, 0.2), turn(3, 0.26, 0.26, 96, 0)],
    [turn(1, 0.3, 0.1, 64, 0), turn(2, 0.30, 0.2), turn(3, 0.36, 0.72)],
]


def test_a_turns_counts_are_the_worst_and_its_times_the_middle_and_the_spread() -> None:
    first, _, last = turn_readings(TALKS)
    assert (first.turn, first.prompt_tokens, first.computed, first.pulled) == (1, 64, 64, 0)
    assert (first.ttft_ms, first.ttft_min_ms, first.ttft_max_ms) == pytest.approx((200, 100, 300))
    assert (last.turn, last.prompt_tokens, last.computed, last.pulled) == (3, 256, 96, 0)
    assert last.fresh_computed == 256
    fresh = last.fresh_ttft_ms, last.fresh_ttft_min_ms, last.fresh_ttft_max_ms
    assert fresh == pytest.approx((440, 260, 720))


def test_ratios_are_within_a_conversation() -> None:
    grown, saved = ratio_readings(TALKS)
    assert (grown.ratio, grown.talks) == ("turn 3 / turn 2", 3)
    assert (grown.median, grown.min, grown.max) == pytest.approx((1.2, 1.1, 1.3))
    assert saved.ratio == "fresh prompt / turn 3"
    assert (saved.median, saved.min, saved.max) == pytest.approx((2.0, 1.0, 4.0))
