"""A clock's offset from Date headers: the truth is always within the bounds."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.doctor.clock import DateHeard, clock_offset, date_seconds


def heard(server_s: float, offset_s: float, up_s: float, down_s: float, age_s: float) -> DateHeard:
    """What we hear of a server that wrote a header at ``server_s`` by its clock, ``age_s`` after it
    had made the date."""
    ours_s = server_s - offset_s
    return DateHeard(float(math.floor(server_s - age_s)), ours_s - up_s, ours_s + down_s)


@given(
    st.floats(-1e5, 1e5),
    st.lists(
        st.tuples(
            st.floats(1e9, 1e9 + 60), st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0, 1.0)
        ),
        min_size=1,
        max_size=12,
    ),
)
@settings(max_examples=150, deadline=None)
def test_the_true_offset_is_within_the_error(
    offset_s: float, answers: list[tuple[float, float, float, float]]
) -> None:
    found = clock_offset(heard(at, offset_s, *rest) for at, *rest in answers)
    assert found is not None
    assert abs(found.offset_s - offset_s) <= found.error_s + 1e-6


def test_answers_spread_over_a_second_bound_it_better_than_one() -> None:
    spread = [heard(1e9 + 0.17 * n, 3.0, 0.001, 0.001, 0.0) for n in range(8)]
    one, many = clock_offset(spread[:1]), clock_offset(spread)
    assert one is not None
    assert many is not None
    assert many.error_s < 0.65 < 1.0 < one.error_s
    assert abs(many.offset_s - 3.0) <= many.error_s


def test_a_clock_that_was_set_meanwhile_gives_no_offset() -> None:
    before, after = heard(1e9, 0.0, 0.0, 0.0, 0.0), heard(1e9, 60.0, 0.0, 0.0, 0.0)
    assert clock_offset([before, after]) is None


def test_nothing_heard_is_nothing_known() -> None:
    assert clock_offset([]) is None


def test_dates_are_those_of_http() -> None:
    assert date_seconds("Sun, 06 Nov 1994 08:49:37 GMT") == 784111777.0
    assert date_seconds("yesterday") is None
    assert date_seconds(None) is None
