"""When a request follows what is cached, and when not."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.ids import WorkerId
from splitserve.router.policy.affinity import MOST_EXTRA, REQUEST_TOKENS, gain
from splitserve.router.policy.base import Held, Placement, Policy, RequestView, WorkerView
from splitserve.router.policy.cost import ByCost
from splitserve.router.policy.least_loaded import LeastLoaded, requests
from splitserve.router.policy.round_robin import RoundRobin

FOLLOWING = [LeastLoaded, ByCost]
SAVED = 4 * REQUEST_TOKENS


def view(name: str, role: str = "colocated", **changes: object) -> WorkerView:
    plain = WorkerView(WorkerId(name), role, 0, 0, 0, 0, 100_000)
    return replace(plain, **changes)  # type: ignore[arg-type]


def ask(tokens: Mapping[str, int], fetched: float = 0.0) -> RequestView:
    held = Held({WorkerId(name): count for name, count in tokens.items()}, fetched)
    return RequestView(20_000, 10, held=held)


def place(policy: Policy, request: RequestView, *workers: WorkerView) -> Placement:
    placement = policy.place(request, workers, 0.0)
    assert placement is not None
    return placement


@pytest.mark.parametrize(
    ("saved", "extra_requests", "extra_tokens", "expected"),
    [
        (0, 0, 0, 0),
        (-1, 0, 0, 0),
        (SAVED, 0, 0, SAVED),
        (SAVED, 1, 0, 3 * REQUEST_TOKENS),
        (SAVED, 4, 0, 0),
        (SAVED, 5, 0, -REQUEST_TOKENS),
        (SAVED, 0, SAVED - 1, 1),
        (SAVED, 0, SAVED, 0),
        (SAVED, 1, 100, 3 * REQUEST_TOKENS - 100),
        (SAVED, 1, -5000, 3 * REQUEST_TOKENS),
        (10**6, MOST_EXTRA, 0, 10**6 - MOST_EXTRA * REQUEST_TOKENS),
        (10**6, MOST_EXTRA + 1, 0, 0),
    ],
)
def test_a_holder_is_worth_what_it_saves_less_what_more_there_is_to_do(
    saved: int, extra_requests: int, extra_tokens: int, expected: int
) -> None:
    assert gain(saved, extra_requests, extra_tokens) == expected


@pytest.mark.parametrize("make", FOLLOWING)
def test_the_next_turn_goes_where_the_longest_start_is(make: type[Policy]) -> None:
    policy, workers = make(), [view("a"), view("b"), view("c")]
    request = ask({"b": 1024, "c": 512})
    assert [place(policy, request, *workers).decode for _ in range(3)] == ["b", "b", "b"]
    placement = place(policy, request, *workers)
    assert placement.reason == "colocated; prefix of 1024 tokens"
    assert placement.decode_cached_tokens == 1024


@pytest.mark.parametrize("make", FOLLOWING)
@pytest.mark.parametrize(
    "full", [{"free_tokens": 0}, {"accepts": False}, {"in_flight": MOST_EXTRA + 1}]
)
def test_when_the_holder_is_full_the_next_best_takes_it(
    make: type[Policy], full: dict[str, object]
) -> None:
    best, next_best = view("b", **full), view("c")
    request = ask({"b": 10_000, "c": 512})
    assert place(make(), request, view("a"), best, next_best).decode == "c"


@pytest.mark.parametrize("make", FOLLOWING)
def test_equal_holders_take_turns(make: type[Policy]) -> None:
    policy, workers = make(), [view("a"), view("b"), view("c")]
    request = ask({"b": 1024, "c": 1024})
    assert [place(policy, request, *workers).decode for _ in range(4)] == ["b", "c", "b", "c"]


@pytest.mark.parametrize(
    ("holder", "chosen"),
    [
        ({"running": 3}, "b"),
        ({"running": 4}, "a"),
        ({"waiting_tokens": SAVED - 1}, "b"),
        ({"waiting_tokens": SAVED}, "a"),
        ({"running": 2, "waiting_tokens": 2 * REQUEST_TOKENS}, "a"),
    ],
)
def test_nobody_queues_behind_a_long_line_to_find_a_cache(
    holder: dict[str, object], chosen: str
) -> None:
    request = ask({"b": SAVED})
    placement = place(LeastLoaded(), request, view("a"), view("b", **holder))
    assert placement.decode == chosen
    assert ("prefix" in placement.reason) == (chosen == "b")


@pytest.mark.parametrize(
    ("waiting", "chosen"), [(0, "p1"), (SAVED - 1, "p1"), (SAVED, "p0"), (5000, "p0")]
)
def test_a_prompt_goes_to_the_prefill_worker_that_is_done_with_it_first(
    waiting: int, chosen: str
) -> None:
    workers = [
        view("p0", "prefill"),
        view("p1", "prefill", waiting_tokens=waiting),
        view("d", "decode", linked=(WorkerId("p0"), WorkerId("p1"))),
    ]
    assert place(LeastLoaded(), ask({"p1": SAVED}), *workers).prefill == chosen


def test_answer_and_prompt_each_go_where_their_start_is_and_the_reason_says_so() -> None:
    linked = (WorkerId("p0"), WorkerId("p1"))
    workers = [
        view("p0", "prefill"),
        view("p1", "prefill"),
        view("d0", "decode", linked=linked),
        view("d1", "decode", linked=linked),
    ]
    placement = place(LeastLoaded(), ask({"p1": 1024, "d1": 1280}), *workers)
    assert (placement.decode, placement.prefill) == ("d1", "p1")
    assert placement.reason.endswith("; prefix of 1280 tokens at decode, 1024 at prefill")
    assert (placement.decode_cached_tokens, placement.prefill_cached_tokens) == (1280, 1024)


def test_where_prefill_fetches_from_decode_its_own_cache_is_no_reason_to_wait() -> None:
    workers = [
        view("p0", "prefill"),
        view("p1", "prefill", waiting_tokens=300),
        view("d", "decode", linked=(WorkerId("p0"), WorkerId("p1"))),
    ]
    held = {"p1": 1024, "d": 1280}
    assert place(LeastLoaded(), ask(held), *workers).prefill == "p1"
    placement = place(LeastLoaded(), ask(held, fetched=1.0), *workers)
    assert (placement.prefill, placement.prefill_cached_tokens) == ("p0", 1280)


def test_what_waits_at_decode_is_no_line_where_prefill_computes_the_prompt() -> None:
    p, link = view("p", "prefill"), (WorkerId("p"),)
    d0 = view("d0", "decode", linked=link)
    d1 = view("d1", "decode", linked=link, waiting_tokens=50_000)
    assert place(LeastLoaded(), ask({"d1": 512}), p, d0, d1).decode == "d1"


def test_round_robin_follows_nothing() -> None:
    policy, workers = RoundRobin(), [view("a"), view("b")]
    request = ask({"b": 1024})
    assert [place(policy, request, *workers).decode for _ in range(4)] == ["a", "b", "a", "b"]


counts = st.integers(0, 15)
fleets = st.lists(
    st.tuples(counts, st.integers(0, 5000), st.integers(0, 20).map(lambda n: n * 256)),
    min_size=1,
    max_size=5,
)


def colocated(fleet: list[tuple[int, int, int]]) -> tuple[list[WorkerView], dict[str, int]]:
    workers = [
        view(f"w{n}", running=running, waiting_tokens=waiting)
        for n, (running, waiting, _) in enumerate(fleet)
    ]
    return workers, {f"w{n}": tokens for n, (_, _, tokens) in enumerate(fleet)}


@settings(max_examples=100)
@given(fleets)
def test_the_load_taken_on_for_a_cache_is_never_more_than_the_cache_saves(
    fleet: list[tuple[int, int, int]],
) -> None:
    workers, held = colocated(fleet)
    by_name = {w.worker: w for w in workers}
    least = by_name[place(LeastLoaded(), RequestView(20_000, 10), *workers).decode]
    chosen = by_name[place(LeastLoaded(), ask(held), *workers).decode]
    extra = requests(chosen) - requests(least)
    saved = held[chosen.worker] - held[least.worker]
    waits = max(0, chosen.waiting_tokens - least.waiting_tokens)
    assert 0 <= extra <= MOST_EXTRA
    assert chosen is least or extra * REQUEST_TOKENS + waits < saved


@settings(max_examples=60)
@given(st.lists(fleets, max_size=4), st.integers(0, 5000))
def test_where_all_hold_the_same_load_alone_decides(
    rounds: list[list[tuple[int, int, int]]], tokens: int
) -> None:
    following, plain = LeastLoaded(), LeastLoaded()
    for fleet in rounds:
        workers, _ = colocated(fleet)
        held = {w.worker: tokens for w in workers}
        chosen = place(following, ask(held), *workers).decode
        assert chosen == place(plain, RequestView(20_000, 10), *workers).decode
