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


def test_too_many_deaths_in_the_window_are_hopeless_and_old_ones_are_forgotten() -> None:
    quick = [10.0, 11.0, 13.0, 17.0, 25.0]
    assert POLICY.is_hopeless(quick, now=25.0)
    assert not POLICY.is_hopeless(quick[1:], now=25.0)
    assert not POLICY.is_hopeless([*quick[:4], 140.0], now=140.0)


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=60))
def test_a_process_is_given_up_only_after_so_many_deaths(deaths: list[float]) -> None:
    deaths.sort()
    for count in range(len(deaths)):
        if POLICY.is_hopeless(deaths[: count + 1], deaths[count]):
            assert count + 1 >= POLICY.give_up_after
            spread = deaths[count] - deaths[count + 1 - POLICY.give_up_after]
            assert spread <= POLICY.window_s


def test_the_wait_stays_at_the_limit_for_ever() -> None:
    assert POLICY.delay_s(10**9) == POLICY.limit_s
