"""The workers of a session's last turn: remembered for a while, for so many sessions."""

from hypothesis import given
from hypothesis import strategies as st

from splitserve.ids import WorkerId
from splitserve.router.policy.base import NO_TURN, LastTurn
from splitserve.router.policy.sessions import Sessions

A, B, P = WorkerId("a"), WorkerId("b"), WorkerId("p")
TURN, OTHER = LastTurn(A, P), LastTurn(B)


def test_the_last_turn_counts() -> None:
    sessions = Sessions()
    assert sessions.last("s", 0.0) == NO_TURN
    sessions.note("s", TURN, 0.0)
    sessions.note("t", OTHER, 0.0)
    assert (sessions.last("s", 1.0), sessions.last("t", 1.0)) == (TURN, OTHER)
    sessions.note("s", OTHER, 1.0)
    assert sessions.last("s", 2.0) == OTHER


def test_requests_without_a_session_leave_nothing() -> None:
    sessions = Sessions()
    sessions.note("", TURN, 0.0)
    assert (len(sessions), sessions.last("", 0.0)) == (0, NO_TURN)


def test_an_old_turn_is_forgotten() -> None:
    sessions = Sessions(ttl_s=10.0)
    sessions.note("s", TURN, 0.0)
    assert sessions.last("s", 10.0) == TURN
    assert sessions.last("s", 10.5) == NO_TURN
    sessions.note("t", OTHER, 10.5)
    assert len(sessions) == 1


def test_the_session_used_longest_ago_goes_first() -> None:
    sessions = Sessions(max_sessions=2)
    for name in ("a", "b", "a", "c"):
        sessions.note(name, TURN, 0.0)
    assert [sessions.last(name, 0.0) for name in "abc"] == [TURN, NO_TURN, TURN]


def test_a_lost_worker_is_forgotten_whatever_it_did() -> None:
    sessions = Sessions()
    sessions.note("prefilled", TURN, 0.0)
    sessions.note("elsewhere", OTHER, 0.0)
    sessions.forget(P)
    assert (sessions.last("prefilled", 0.0), sessions.last("elsewhere", 0.0)) == (NO_TURN, OTHER)


@given(
    st.lists(st.tuples(st.text(max_size=2), st.floats(0, 5)), max_size=60),
    st.integers(0, 5),
    st.floats(0.5, 20),
)
def test_there_are_never_more_than_allowed_nor_older_ones(
    notes: list[tuple[str, float]], most: int, ttl_s: float
) -> None:
    sessions, now, newest = Sessions(most, ttl_s), 0.0, dict[str, float]()
    for name, passed in notes:
        now += passed
        sessions.note(name, TURN, now)
        newest[name] = now
        assert len(sessions) <= most
    for name, at in newest.items():
        if now - at > ttl_s:
            assert sessions.last(name, now) == NO_TURN
