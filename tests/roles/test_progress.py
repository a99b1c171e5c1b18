"""Seconds since a worker with work last made a step."""

from splitserve.protocol.telemetry import KVCounts, Load
from splitserve.roles.progress import Progress


def load(steps: int, running: int = 0, waiting: int = 0) -> Load:
    return Load(KVCounts(9, 0, 0, 0, 0, 0), running, waiting, 0, steps, 0, 0, 0)


def test_an_idle_worker_whose_thread_turns_is_well() -> None:
    progress = Progress(0.0)
    assert progress.since_step_s(load(0), 100.0, 100.0) == 0.0


def test_a_worker_that_steps_is_well() -> None:
    progress = Progress(0.0)
    progress.since_step_s(load(1, running=1), 1.0, 1.0)
    assert progress.since_step_s(load(2, running=1), 50.0, 50.0) == 0.0


def test_work_without_steps_is_counted_from_the_last_one() -> None:
    progress = Progress(0.0)
    progress.since_step_s(load(1, running=1), 1.0, 1.0)
    assert progress.since_step_s(load(1, waiting=3), 7.0, 7.0) == 6.0
    assert progress.since_step_s(load(2, waiting=3), 8.0, 8.0) == 0.0


def test_a_thread_that_hangs_is_seen_although_it_reports_no_work() -> None:
    progress = Progress(0.0)
    progress.since_step_s(load(1), 1.0, 1.0)
    assert progress.since_step_s(load(1), 1.0, 9.0) == 8.0
