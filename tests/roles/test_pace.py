"""Late launches over a played device: what they cost it, and what they bring to who arrives."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice, pairwise
from random import Random
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.engine.api import StepTimes
from splitserve.roles.loop import DEVICE_WAIT_S
from splitserve.roles.pace import LEAST_LENGTHS, MARGIN_S, SHORTEST_S, Pace

MS = 0.001
HANDLING_S = 0.1 * MS

RECOVERY = LEAST_LENGTHS + 1
"""Steps after a late launch until there can be a guess again: the first has no known beginning."""


@dataclass(frozen=True)
class Step:
    """``length`` is the device's time, ``launch`` the host's for giving it the step, ``wake`` how
    late the host sees that the step before has ended, ``handling`` what it does with that one."""

    length: float
    launch: float = 1.0 * MS
    wake: float = 0.0
    handling: float = HANDLING_S
    even: bool = True


@dataclass
class Run:
    """``idle[i]`` is what the device waited for step i; ``begun`` when its launch began, ``ended``
    when the device was done with it. ``guessed[i]`` is how long after the beginning of step i the
    next launch was to begin, or None."""

    idle: list[float] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    guessed: list[float | None] = field(default_factory=list)

    def join(self, arrival: float) -> float:
        """From the arrival to the end of the first step that was not launched yet."""
        return self.ended[bisect_left(self.begun, arrival)] - arrival

    def idle_share(self, steps: Sequence[Step]) -> float:
        return sum(self.idle) / sum(step.length for step in steps)


@dataclass
class _Device:
    """Computes in order; the host sees the end of the oldest open step."""

    free: float = 0.0
    open: deque[float] = field(default_factory=deque)

    def launch(self, now: float, length: float) -> float:
        """Returns how long it had nothing to do."""
        idle = max(0.0, now - self.free)
        self.free = max(now, self.free) + length
        self.open.append(self.free)
        return idle


def play(steps: Sequence[Step], paced: bool = True) -> Run:
    """The loop of an engine's thread with two launches open, in played time."""
    pace, device, run, now = Pace(), _Device(), Run(), 0.0
    for step in steps:
        began = now
        now += step.launch
        if not device.open:
            device.free = now
        run.begun.append(began)
        run.idle.append(device.launch(now, step.length))
        run.ended.append(device.free)
        times = None
        if len(device.open) > 1:
            launched, end = now, device.open.popleft()
            now = max(now, end + step.wake)
            times = StepTimes(began, launched, now, end > launched, step.even)
        pace.stepped(times)
        at = pace.launch_at()
        run.guessed.append(None if at is None else at - device.free + step.length)
        now += step.handling
        while paced and at is not None and now < at and device.open[0] > now:
            now = min(at, now + DEVICE_WAIT_S)
    return run


def steady(
    length_ms: float, launch_ms: float = 1.0, *, drift: float = 0.0, seed: int = 0, count: int = 400
) -> list[Step]:
    """Lengths that wander by at most ``drift`` from step to step, at most to half or double;
    launches that take up to 1.3 times as long, and waking up on time by 0.1 ms."""
    random, factor, steps = Random(seed), 1.0, []
    for _ in range(count):
        factor = min(2.0, max(0.5, factor * (1.0 + random.uniform(-drift, drift))))
        launch = launch_ms * MS * random.uniform(1.0, 1.3)
        steps.append(Step(length_ms * factor * MS, launch, random.uniform(0.0, 0.1) * MS))
    return steps


def arrivals(run: Run, count: int = 200) -> list[float]:
    """Spread over all steps but the last few, at odd places within them."""
    span = run.begun[-3] - run.begun[0]
    return [run.begun[0] + span * (i + 0.5) / count for i in range(count)]


def gain(steps: Sequence[Step]) -> float:
    """Seconds by which late launches bring the first token of who arrives forward, on average."""
    before, after = play(steps, paced=False), play(steps)
    return mean(map(before.join, arrivals(before))) - mean(map(after.join, arrivals(after)))


@pytest.mark.parametrize("length_ms", [5.0, 10.0, 30.0])
def test_who_arrives_joins_earlier_by_nearly_a_step(length_ms: float) -> None:
    steps = [Step(length_ms * MS)] * 400
    lead = steps[0].launch + MARGIN_S
    assert gain(steps) == pytest.approx(length_ms * MS - lead - HANDLING_S, abs=0.1 * MS)
    assert sum(play(steps).idle) == 0.0


steady_steps = st.builds(
    steady,
    st.floats(2.0, 50.0),
    st.floats(0.2, 2.0),
    drift=st.floats(0.0, 0.02),
    seed=st.integers(0, 1 << 16),
)


@given(steady_steps)
@settings(max_examples=100, deadline=None)
def test_steps_that_change_slowly_leave_the_device_idle_for_less_than_a_fiftieth(
    steps: list[Step],
) -> None:
    before, after = play(steps, paced=False), play(steps)
    assert after.idle_share(steps) <= before.idle_share(steps) + 0.02


@given(st.floats(5.0, 50.0), st.floats(0.2, 2.0), st.floats(0.0, 0.02), st.integers(0, 1 << 16))
@settings(max_examples=60, deadline=None)
def test_steps_that_change_slowly_are_joined_earlier(
    length_ms: float, launch_ms: float, drift: float, seed: int
) -> None:
    steps = steady(length_ms, launch_ms, drift=drift, seed=seed)
    shortest = min(step.length for step in steps)
    possible = shortest - 1.3 * launch_ms * MS - MARGIN_S - HANDLING_S
    assert gain(steps) >= 0.5 * max(0.0, possible)


wild_steps = st.lists(
    st.builds(
        Step,
        length=st.sampled_from([0.3, 3.0, 5.0, 9.0, 40.0]).map(lambda ms: ms * MS),
        launch=st.sampled_from([0.2, 1.0, 2.0, 8.0]).map(lambda ms: ms * MS),
        even=st.booleans() | st.just(True),
    ),
    min_size=20,
    max_size=80,
)


@given(wild_steps)
@settings(max_examples=150, deadline=None)
def test_whatever_comes_the_device_waits_for_one_launch_and_one_look_at_most(
    steps: list[Step],
) -> None:
    idle = play(steps).idle
    for step, waited in zip(steps, idle, strict=True):
        assert waited <= step.launch + HANDLING_S + DEVICE_WAIT_S + 1e-9


@given(wild_steps, st.lists(st.floats(0.0, 3.0), min_size=80, max_size=80))
@settings(max_examples=150, deadline=None)
def test_no_guess_is_longer_than_steps_were_however_late_the_host_is(
    steps: list[Step], late_ms: list[float]
) -> None:
    late = [
        replace(step, wake=ms * MS) for step, ms in zip(steps, late_ms[: len(steps)], strict=True)
    ]
    longest = max((step.length for step in steps if step.even), default=0.0)
    # One wake is in the beginning that is seen, one in the end of what was measured.
    limit = longest - MARGIN_S + 2 * max(step.wake for step in late) + 1e-9
    assert all(guess is None or guess <= limit for guess in play(late).guessed)


@given(
    st.floats(2.0, 20.0),
    st.lists(st.sampled_from([0.1, 4.0, 60.0]), min_size=1, max_size=8),
    st.lists(st.sampled_from([0.1, 4.0, 60.0]), min_size=1, max_size=8),
)
@settings(max_examples=100, deadline=None)
def test_a_late_host_does_not_lengthen_the_guess(
    length_ms: float, launches_ms: list[float], handlings_ms: list[float]
) -> None:
    hosts = islice(zip(cycle(launches_ms), cycle(handlings_ms)), 100)
    steps = [
        Step(length_ms * MS, launch=launch * MS, handling=handling * MS)
        for launch, handling in hosts
    ]
    guesses = [guess for guess in play(steps).guessed if guess is not None]
    assert all(guess <= length_ms * MS - MARGIN_S + 1e-9 for guess in guesses)


@given(st.floats(5.0, 50.0), st.floats(0.1, 0.9), st.floats(0.2, 1.0))
@settings(max_examples=100, deadline=None)
def test_after_shorter_steps_it_takes_a_few_until_the_device_is_busy_again(
    length_ms: float, ratio: float, launch_ms: float
) -> None:
    launch = launch_ms * MS
    short = max(length_ms * ratio * MS, launch + 2 * HANDLING_S)
    steps = [Step(length_ms * MS, launch)] * 30 + [Step(short, launch)] * 30
    run = play(steps)
    assert sum(run.idle[:31]) == 0.0
    assert sum(run.idle[31 + RECOVERY :]) == 0.0
    assert sum(idle > 0.0 for idle in run.idle) <= 1
    paced = short >= SHORTEST_S
    assert (run.guessed[31 + RECOVERY] is not None) == paced


@given(st.floats(2.5, 20.0), st.floats(1.1, 5.0))
@settings(max_examples=60, deadline=None)
def test_longer_steps_cost_nothing(length_ms: float, ratio: float) -> None:
    steps = [Step(length_ms * MS)] * 30 + [Step(length_ms * ratio * MS)] * 30
    run = play(steps)
    assert sum(run.idle) == 0.0
    lead = steps[0].launch + MARGIN_S
    assert run.guessed[-1] == pytest.approx(length_ms * ratio * MS - lead)


@pytest.mark.parametrize("every", [4, 10, 30])
def test_chunks_of_prompts_in_between_are_not_waited_for(every: int) -> None:
    chunk = Step(60 * MS, launch=6 * MS, even=False)
    steps = [chunk if i % every == every - 1 else Step(5 * MS) for i in range(600)]
    before, after = play(steps, paced=False), play(steps)
    for step, guess in zip(steps, after.guessed, strict=True):
        assert step.even or guess is None
    assert after.idle_share(steps) <= before.idle_share(steps) + 0.04
    assert any(guess is not None for guess in after.guessed)


def test_short_steps_are_launched_at_once() -> None:
    assert set(play([Step(0.9 * SHORTEST_S, launch=0.1 * MS)] * 50).guessed) == {None}


def test_nothing_is_guessed_before_steps_were_measured() -> None:
    guessed = play([Step(5 * MS)] * 10).guessed
    known = [guess is not None for guess in guessed]
    assert known == [False] * (LEAST_LENGTHS + 1) + [True] * (9 - LEAST_LENGTHS)


def measured(*steps: Step) -> float | None:
    """When to launch after these steps, each waited for, counted from the end of the last."""
    pace, now = Pace(), 0.0
    for before, step in pairwise([Step(0.0), *steps, Step(0.0)]):
        began, now = now, now + before.length
        pace.stepped(StepTimes(began, began + step.launch, now, waited=True, even=step.even))
    at = pace.launch_at()
    return None if at is None else at - now


def test_the_shortest_of_the_last_steps_is_the_guess() -> None:
    lead = Step(0.0).launch + MARGIN_S
    lengths = [3, 9, 7, 8, 6, 9]
    assert measured(*(Step(length * MS) for length in lengths)) == pytest.approx(6 * MS - lead)


def test_a_step_with_a_prompt_is_no_measure_for_others() -> None:
    chunk = Step(4 * MS, even=False)
    steps = [Step(9 * MS), chunk, Step(8 * MS), chunk, Step(7 * MS)]
    assert measured(*steps) == pytest.approx(7 * MS - Step(0.0).launch - MARGIN_S)


def test_a_step_with_nothing_behind_it_ends_the_guessing() -> None:
    pace = Pace()
    for number in range(5):
        pace.stepped(StepTimes(number, number + 0.001, number + 1.0, waited=True, even=True))
    assert pace.launch_at() == pytest.approx(5.0 + 1.0 - 0.001 - MARGIN_S)
    pace.stepped(None)
    assert pace.launch_at() is None


def test_the_longest_of_the_last_launches_counts() -> None:
    pace = Pace()
    for number in range(5):
        began = number + (0.7 if number == 3 else 0.9)
        pace.stepped(StepTimes(began, number + 0.95, number + 1.0, waited=True, even=True))
    assert pace.launch_at() == pytest.approx(5.0 + 1.0 - 0.25 - MARGIN_S)
