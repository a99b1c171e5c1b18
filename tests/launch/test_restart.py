from hypothesis import given
from hypothesis import strategies as st

from splitserve.launch.restart import RestartPolicy

POLICY = RestartPolicy()


def test_the_wait_doubles_up_to_the_limit() -> None:
    waits = [POLICY.delay_s(failures) for failures in range(1, 9)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_healthy_minute_begins_anew() -> None:
    assert POLICY.failures_in_row(5, uptime_s=59.9) == 6
    assert POLICY.failures_in_row(5, uptime_s=60.0) == 1


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=300))
def test_every_wait_is_within_bounds(uptimes: list[float]) -> None:
    failures = 0
    for uptime_s in uptimes:
        failures = POLICY.failures_in_row(failures, uptime_s)
        assert POLICY.first_s <= POLICY.delay_s(failures) <= POLICY.limit_s


def test_the_wait_stays_at_the_limit_for_ever() -> None:
    assert POLICY.delay_s(10**9) == POLICY.limit_s
