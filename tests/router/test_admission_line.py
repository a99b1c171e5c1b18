"""The order in which waiting requests go."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.ids import RequestId
from splitserve.router.admission.line import Line
from splitserve.router.admission.views import Candidate

ASKS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.integers(1, 300)), max_size=60
)


def ask(serial: int, owner: str = "", tokens: int = 10, priority: int = 0) -> Candidate:
    return Candidate(RequestId(f"r{serial}"), tokens, priority, owner, serial, 0.0, 30.0)


def line_of(*candidates: Candidate) -> Line:
    line = Line()
    for candidate in candidates:
        line.join(candidate)
    return line


def serve(line: Line) -> Candidate:
    first = line.first()
    assert first is not None
    line.serve(first)
    return first


def serve_all(line: Line) -> list[Candidate]:
    return [serve(line) for _ in range(len(line))]


def test_lower_priorities_go_first_and_equals_in_order_of_arrival() -> None:
    line = line_of(ask(0, priority=5), ask(1), ask(2, priority=-1), ask(3))
    assert [c.serial for c in serve_all(line)] == [2, 1, 3, 0]
    assert line.first() is None


def test_a_new_owner_waits_for_one_request_of_an_owner_with_a_thousand() -> None:
    line = line_of(*(ask(n, "many", tokens=3) for n in range(1000)))
    for _ in range(100):
        serve(line)
    line.join(ask(1000, "one", tokens=200))
    assert "one" in [serve(line).owner for _ in range(2)]


@settings(deadline=None)
@given(ahead=st.integers(1, 50), sizes=st.lists(st.integers(1, 500), min_size=60, max_size=60))
def test_whatever_the_prompts_a_new_owner_waits_for_one_request(
    ahead: int, sizes: list[int]
) -> None:
    line = line_of(*(ask(n, "many", tokens) for n, tokens in enumerate(sizes)))
    for _ in range(ahead):
        serve(line)
    line.join(ask(1000, "one", 500))
    assert "one" in [serve(line).owner for _ in range(2)]


@settings(deadline=None, max_examples=50)
@given(small=st.integers(1, 50), large=st.integers(1, 500))
def test_owners_get_equal_prompt_tokens_however_they_cut_them(small: int, large: int) -> None:
    line = line_of(*(ask(n, "a", small) for n in range(150)))
    for n in range(150, 300):
        line.join(ask(n, "b", large))
    given_out, left = Counter[str](), Counter({"a": 150, "b": 150})
    while min(left.values()) > 0:
        served = serve(line)
        left[served.owner] -= 1
        given_out[served.owner] += served.prompt_tokens
        assert abs(given_out["a"] - given_out["b"]) <= 2 * max(small, large)


def test_an_owner_alone_gets_everything() -> None:
    line = line_of(*(ask(n, "a", 1 + n % 7) for n in range(50)))
    assert [c.serial for c in serve_all(line)] == list(range(50))


@settings(deadline=None)
@given(ASKS)
def test_all_are_served_once_by_priority_and_each_owner_in_order(
    asks: list[tuple[int, str, int]],
) -> None:
    line = line_of(*(ask(n, o, t, priority=p) for n, (p, o, t) in enumerate(asks)))
    assert line.tokens == sum(tokens for _, _, tokens in asks)
    served = serve_all(line)
    assert sorted(c.serial for c in served) == list(range(len(asks)))
    assert [c.priority for c in served] == sorted(c.priority for c in served)
    for key in {(c.priority, c.owner) for c in served}:
        own = [c.serial for c in served if (c.priority, c.owner) == key]
        assert own == sorted(own)
    assert (len(line), line.tokens) == (0, 0)


@settings(deadline=None, max_examples=50)
@given(rest=st.integers(0, 20), tokens=st.integers(1, 100))
def test_nobody_starves_while_owners_never_seen_keep_coming(rest: int, tokens: int) -> None:
    line = line_of(*(ask(n, "old", tokens) for n in range(3)))
    for n in range(rest):
        line.join(ask(100 + n, f"first-{n}"))
    old = 0
    for turn in range(30 * (rest + 10)):
        line.join(ask(1000 + turn, f"new-{turn}"))
        old += serve(line).owner == "old"
    assert old == 3


@settings(deadline=None)
@given(ASKS, st.data())
def test_what_leaves_unserved_is_charged_to_nobody(
    asks: list[tuple[int, str, int]], data: st.DataObject
) -> None:
    candidates = [ask(n, o, t, priority=p) for n, (p, o, t) in enumerate(asks)]
    gone = set(data.draw(st.lists(st.sampled_from(candidates)))) if candidates else set()
    line = line_of(*candidates)
    for candidate in gone:
        line.leave(candidate)
        line.leave(candidate)
    fresh = line_of(*(c for c in candidates if c not in gone))
    left = [(c.priority, c.owner, c.prompt_tokens) for c in serve_all(line)]
    never = [(c.priority, c.owner, c.prompt_tokens) for c in serve_all(fresh)]
    assert sorted(left) == sorted(never)
    assert (len(line), line.tokens) == (0, 0)


def test_who_was_sent_back_gets_its_place_back_and_its_owner_the_tokens() -> None:
    line = line_of(ask(0, "a"), ask(1, "a"), ask(2, "b"), ask(3, "c", priority=-1))
    assert [serve(line).serial for _ in range(3)] == [3, 0, 2]
    line.rejoin(ask(2, "b"))
    line.rejoin(ask(0, "a"))
    line.join(ask(4, "d", priority=-1))
    assert [c.serial for c in serve_all(line)] == [4, 0, 2, 1]


def test_an_owner_whose_burst_was_sent_back_delays_another_by_one_request() -> None:
    line = line_of(*(ask(n, "many") for n in range(40)))
    burst = [serve(line) for _ in range(36)]
    line.join(ask(100, "one"))
    for candidate in burst:
        line.rejoin(candidate)
    served = serve_all(line)
    assert "one" in [c.owner for c in served[:2]]
    assert [c.serial for c in served if c.owner == "many"] == list(range(40))


def test_the_last_in_line_is_never_one_that_was_sent_back() -> None:
    line = line_of(ask(0, "a"), ask(1, "b", priority=1))
    back = serve(line)
    line.leave(ask(1, "b", priority=1))
    line.rejoin(back)
    assert line.last() is None
    line.join(ask(2, "a", priority=-1))
    last = line.last()
    assert last is not None
    assert last.serial == 2


@settings(deadline=None)
@given(ASKS)
def test_ahead_counts_those_before_it_in_order(asks: list[tuple[int, str, int]]) -> None:
    line = line_of(*(ask(n, o, t, priority=p) for n, (p, o, t) in enumerate(asks)))
    tokens = 0
    for before, candidate in enumerate(line.order()):
        assert line.ahead(candidate) == (before, tokens)
        tokens += candidate.prompt_tokens


@settings(deadline=None)
@given(ASKS)
def test_the_order_told_is_the_order_kept_while_owners_are_alone(
    asks: list[tuple[int, str, int]],
) -> None:
    line = line_of(*(ask(n, "a", t, priority=p) for n, (p, _, t) in enumerate(asks)))
    told = line.order()
    assert serve_all(line) == told
