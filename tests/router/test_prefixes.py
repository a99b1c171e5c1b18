"""What the router believes its workers to have cached."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.ids import Incarnation, WorkerId
from splitserve.router.policy.base import WorkerView
from splitserve.router.policy.chunks import CHUNK, Chunks
from splitserve.router.policy.prefixes import Prefixes

A, B = WorkerId("a"), WorkerId("b")
LARGE = 1000 * CHUNK


def view(
    worker: WorkerId, *, life: int = 0, pool: int = LARGE, role: str = "colocated"
) -> WorkerView:
    incarnation = Incarnation(f"life-{life}")
    return WorkerView(worker, role, 0, 0, 0, 0, 0, incarnation=incarnation, pool_tokens=pool)


def starts(letters: Sequence[int], salt: str = "") -> list[bytes]:
    """Of a text in which each letter fills a chunk."""
    chunks = Chunks(salt)
    for letter in letters:
        chunks.extend([letter] * CHUNK)
    return chunks.names


def known(*views: WorkerView, max_chunks: int = 1000) -> Prefixes:
    prefixes = Prefixes(max_chunks)
    prefixes.held([], views)
    return prefixes


def chunks_at(prefixes: Prefixes, view: WorkerView, letters: Sequence[int]) -> int:
    return prefixes.held(starts(letters), [view]).at(view.worker) // CHUNK


def remembered(
    prefixes: Prefixes, views: Sequence[WorkerView], texts: Sequence[Sequence[int]]
) -> int:
    """Chunks of all workers, where nothing but ``texts`` was noted."""
    found = {
        (view.worker, tuple(text[: length + 1]))
        for view in views
        for text in texts
        for length in range(chunks_at(prefixes, view, text))
    }
    return len(found)


def test_the_next_turn_finds_the_one_before_where_it_was_answered() -> None:
    a, b = view(A), view(B)
    prefixes = known(a, b)
    prefixes.note(A, starts([1, 2, 3]))
    prefixes.note(B, starts([1]))
    held = prefixes.held(starts([1, 2, 3, 4]), [a, b])
    assert held.tokens == {A: 3 * CHUNK, B: CHUNK}


def test_an_edited_history_finds_only_the_common_start() -> None:
    prefixes = known(view(A))
    prefixes.note(A, starts([1, 2, 3, 4]))
    assert chunks_at(prefixes, view(A), [1, 2, 9, 4]) == 2
    assert chunks_at(prefixes, view(A), [1, 2, 4]) == 2
    assert chunks_at(prefixes, view(A), [2, 3, 4]) == 0


def test_another_tenant_finds_nothing() -> None:
    prefixes = known(view(A))
    prefixes.note(A, starts([1, 2], "mine"))
    assert prefixes.held(starts([1, 2], "yours"), [view(A)]).tokens == {}


def test_what_was_used_longest_ago_goes_first_and_long_starts_before_short_ones() -> None:
    a = view(A, pool=4 * CHUNK)
    prefixes = known(a)
    prefixes.note(A, starts([1, 1, 1]))
    prefixes.note(A, starts([2, 2, 2]))
    assert [chunks_at(prefixes, a, [n] * 3) for n in (1, 2)] == [1, 3]
    prefixes.note(A, starts([1]))
    prefixes.note(A, starts([3]))
    assert [chunks_at(prefixes, a, [n] * 3) for n in (1, 2, 3)] == [1, 2, 1]


def test_a_text_longer_than_the_pool_keeps_its_start() -> None:
    a = view(A, pool=3 * CHUNK + 1)
    prefixes = known(a)
    prefixes.note(A, starts([1, 2, 3, 4, 5]))
    assert chunks_at(prefixes, a, [1, 2, 3, 4, 5]) == 3


@pytest.mark.parametrize("lost", [True, False])
def test_a_new_life_has_nothing_of_the_one_before(lost: bool) -> None:
    prefixes = known(view(A))
    prefixes.note(A, starts([1, 2]))
    if lost:
        prefixes.forget(A)
    assert chunks_at(prefixes, view(A, life=1), [1, 2]) == 0
    assert chunks_at(prefixes, view(A), [1, 2]) == 0


def test_nothing_is_noted_of_a_worker_that_was_never_met_or_is_lost() -> None:
    prefixes = known(view(A))
    prefixes.note(B, starts([1]))
    prefixes.forget(A)
    prefixes.note(A, starts([1]))
    prefixes.told(A, starts([1]), 0)
    assert prefixes.held(starts([1]), [view(A), view(B)]).tokens == {}


def test_less_is_expected_of_a_worker_that_caches_nothing_until_it_does() -> None:
    prefixes, text = known(view(A), view(B)), [1, 2, 3, 4]
    for worker in (A, B):
        prefixes.note(worker, starts(text))
    for _ in range(30):
        prefixes.told(A, starts(text), 0)
        prefixes.told(B, starts(text), 4 * CHUNK)
    assert chunks_at(prefixes, view(A), text) == 0
    assert chunks_at(prefixes, view(B), text) == 4
    for _ in range(30):
        prefixes.told(A, starts(text), 4 * CHUNK)
    assert chunks_at(prefixes, view(A), text) >= 3


def test_what_prefill_fetches_from_decode_is_learnt_and_counts_for_every_prefill_worker() -> None:
    p, d = view(A, role="prefill"), view(B, role="decode")
    prefixes = known(p, d)
    prefixes.note(A, starts([1]))
    prefixes.note(B, starts([1, 2, 3]))
    held = prefixes.held(starts([1, 2, 3]), [p, d])
    assert held.for_prefill(A, B) == CHUNK
    for _ in range(60):
        prefixes.told(A, starts([1, 2, 3]), 3 * CHUNK, B)
    held = prefixes.held(starts([1, 2, 3]), [p, d])
    assert held.at(A) == CHUNK
    assert 2 * CHUNK < held.for_prefill(A, B) <= 3 * CHUNK
    assert held.for_prefill(WorkerId("other"), B) > CHUNK


texts = st.lists(st.integers(0, 2), max_size=6)
steps = st.one_of(
    st.tuples(st.just("note"), st.sampled_from([A, B]), texts),
    st.tuples(st.just("lose"), st.sampled_from([A, B]), st.just([])),
    st.tuples(st.just("restart"), st.sampled_from([A, B]), st.just([])),
)


def common(one: list[int], other: list[int]) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


@settings(max_examples=80)
@given(st.lists(steps, max_size=25), texts, st.integers(1, 8), st.booleans())
def test_it_is_bounded_and_finds_only_what_this_life_was_given(
    course: list[tuple[str, WorkerId, list[int]]], asked: list[int], size: int, ample: bool
) -> None:
    """And all of that, where the pool has room for it."""
    pool = LARGE if ample else size * CHUNK
    lives, given_to = {A: 0, B: 0}, {A: list[list[int]](), B: list[list[int]]()}
    prefixes = known(view(A, pool=pool), view(B, pool=pool), max_chunks=200)
    for kind, worker, text in course:
        if kind == "note":
            prefixes.note(worker, starts(text))
            given_to[worker].append(text)
        else:
            given_to[worker] = []
        if kind == "lose":
            prefixes.forget(worker)
        lives[worker] += kind == "restart"
        views = [view(name, life=lives[name], pool=pool) for name in (A, B)]
        held = prefixes.held(starts(asked), views)
        assert remembered(prefixes, views, [*given_to[A], *given_to[B]]) <= 2 * (pool // CHUNK)
        for name in (A, B):
            most = max((common(asked, text) for text in given_to[name]), default=0)
            found = held.at(name) // CHUNK
            assert found == most if ample else found <= most


@settings(max_examples=30)
@given(st.lists(texts, max_size=20), st.integers(0, 6))
def test_no_worker_has_more_chunks_than_it_may(course: list[list[int]], most: int) -> None:
    prefixes = known(view(A), max_chunks=most)
    for text in course:
        prefixes.note(A, starts(text))
        assert remembered(prefixes, [view(A)], course) <= most
