"""What a gateway and a worker believe, compared."""

from hypothesis import given
from hypothesis import strategies as st

from splitserve.ids import RequestId
from splitserve.router.workers.reconcile import RECONCILE_EVERY_S, Questions, strays

ids = st.frozensets(st.sampled_from([RequestId(c) for c in "abcdefgh"]))


@given(asked=ids, ended=ids, begun=ids, held=ids)
def test_only_what_differs_in_both_looks_is_a_stray(
    asked: frozenset[RequestId],
    ended: frozenset[RequestId],
    begun: frozenset[RequestId],
    held: frozenset[RequestId],
) -> None:
    now = (asked - ended) | begun
    found = strays(asked, now, held)
    assert found.at_worker == {r for r in held if r not in asked and r not in now}
    assert found.at_gateway == {r for r in asked if r in now and r not in held}
    assert not found.at_worker & found.at_gateway


@given(asked=ids)
def test_two_that_agree_have_no_strays(asked: frozenset[RequestId]) -> None:
    found = strays(asked, asked, asked)
    assert not found.at_worker
    assert not found.at_gateway


def test_one_question_at_a_time_and_not_too_often() -> None:
    questions = Questions()
    assert not questions.due(RECONCILE_EVERY_S / 2)
    assert questions.due(RECONCILE_EVERY_S)
    serial = questions.ask([RequestId("a")], RECONCILE_EVERY_S)
    assert not questions.due(100 * RECONCILE_EVERY_S)
    assert questions.answered(serial + 1) is None
    assert questions.answered(serial) == {"a"}
    assert questions.answered(serial) is None
    assert questions.due(2 * RECONCILE_EVERY_S)
