from collections import Counter
from dataclasses import replace

import pytest

from splitserve.errors import ConfigError
from splitserve.ids import WorkerId
from splitserve.router.config import RouterConfig
from splitserve.router.policy import registry
from splitserve.router.policy.base import Policy, RequestView, WorkerView
from splitserve.router.policy.cost import ByCost
from splitserve.router.policy.least_loaded import LeastLoaded
from splitserve.router.policy.round_robin import RoundRobin

ASK = RequestView(prompt_tokens=100, max_tokens=10)
POLICIES = [RoundRobin, LeastLoaded, ByCost]


def view(name: str, role: str = "colocated", **changes: object) -> WorkerView:
    plain = WorkerView(
        worker=WorkerId(name),
        role=role,
        in_flight=0,
        running=0,
        waiting=0,
        waiting_tokens=0,
        free_tokens=1000,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def linked(*names: str) -> tuple[WorkerId, ...]:
    return tuple(WorkerId(name) for name in names)


def decode_of(policy: Policy, workers: list[WorkerView]) -> str:
    placement = policy.place(ASK, workers, 0.0)
    assert placement is not None
    return placement.decode


@pytest.mark.parametrize("make", POLICIES)
def test_ties_go_round_whatever_the_names(make: type[Policy]) -> None:
    policy, workers = make(), [view("c"), view("a"), view("b")]
    chosen = [decode_of(policy, workers) for _ in range(6)]
    assert chosen == ["c", "a", "b", "c", "a", "b"]


def test_round_robin_keeps_turning_when_the_set_of_workers_changes() -> None:
    policy, a, b, c = RoundRobin(), view("a"), view("b"), view("c")
    assert decode_of(policy, [a, b, c]) == "a"
    assert decode_of(policy, [a, c]) == "c"
    assert decode_of(policy, [a, b, c]) == "b"
    assert decode_of(policy, [a, b, c]) == "a"


def test_least_loaded_really_follows_load() -> None:
    policy = LeastLoaded()
    workers = [view("busy", running=50, waiting=5), view("idle")]
    chosen = Counter(decode_of(policy, workers) for _ in range(200))
    assert chosen == {"idle": 200}


def test_least_loaded_counts_what_was_sent_before_the_worker_reports_it() -> None:
    workers = [view("a", in_flight=3), view("b", running=2)]
    assert [decode_of(LeastLoaded(), workers) for _ in range(2)] == ["b", "b"]


def test_prefill_is_the_linked_worker_with_the_fewest_waiting_tokens() -> None:
    workers = [
        view("p0", "prefill", waiting_tokens=0),
        view("p1", "prefill", waiting_tokens=500),
        view("p2", "prefill", waiting_tokens=900),
        view("d0", "decode", linked=linked("p1", "p2", "p9")),
    ]
    placement = LeastLoaded().place(ASK, workers, 0.0)
    assert placement is not None
    assert (placement.decode, placement.prefill) == ("d0", "p1")
    assert "500 of 2 linked" in placement.reason


@pytest.mark.parametrize("make", POLICIES)
def test_a_full_worker_is_passed_over_and_when_all_are_full_nobody_is_chosen(
    make: type[Policy],
) -> None:
    full, roomy = view("a", free_tokens=100), view("b", free_tokens=101, running=9)
    assert decode_of(make(), [full, roomy]) == "b"
    assert make().place(ASK, [full], 0.0) is None
    assert make().place(ASK, [], 0.0) is None


@pytest.mark.parametrize("make", POLICIES)
def test_a_full_decode_pool_does_not_spill_onto_prefill_workers(make: type[Policy]) -> None:
    workers = [view("p", "prefill"), view("d", "decode", linked=linked("p"), free_tokens=0)]
    assert make().place(ASK, workers, 0.0) is None


@pytest.mark.parametrize(
    ("workers", "decode", "why"),
    [
        ([view("d", "decode", linked=linked("p"))], "d", "no prefill worker is linked"),
        ([view("p", "prefill"), view("d", "decode")], "d", "no prefill worker is linked"),
        ([view("p", "prefill")], "p", "no decode worker is usable"),
        ([view("c")], "c", "colocated"),
    ],
)
@pytest.mark.parametrize("make", POLICIES)
def test_leftovers_answer_whole_and_the_reason_says_so(
    make: type[Policy], workers: list[WorkerView], decode: str, why: str
) -> None:
    placement = make().place(ASK, workers, 0.0)
    assert placement is not None
    assert (placement.decode, placement.prefill) == (decode, None)
    assert why in placement.reason


@pytest.mark.parametrize("make", POLICIES)
def test_a_linked_decode_worker_is_preferred_to_one_without_a_link(make: type[Policy]) -> None:
    workers = [
        view("p", "prefill"),
        view("d0", "decode"),
        view("d1", "decode", linked=linked("p"), running=9),
    ]
    assert decode_of(make(), workers) == "d1"


@pytest.mark.parametrize("make", POLICIES)
def test_nothing_goes_to_a_worker_that_does_not_accept_it(make: type[Policy]) -> None:
    full, free = view("a", accepts=False), view("b", running=9)
    assert decode_of(make(), [full, free]) == "b"
    assert make().place(ASK, [full], 0.0) is None


@pytest.mark.parametrize("make", POLICIES)
def test_a_split_request_waits_for_a_prefill_worker_that_accepts_it(make: type[Policy]) -> None:
    busy, free = view("p0", "prefill", accepts=False), view("p1", "prefill", waiting_tokens=900)
    d0, d1 = view("d0", "decode", linked=linked("p0", "p1")), view("d1", "decode", running=9)
    assert make().place(ASK, [busy, replace(d0, linked=linked("p0"))], 0.0) is None
    placement = make().place(ASK, [busy, free, d0, d1], 0.0)
    assert placement is not None
    assert (placement.decode, placement.prefill) == ("d0", "p1")


def test_policies_are_made_by_name_and_an_unknown_one_is_named() -> None:
    assert isinstance(registry.create("round_robin"), RoundRobin)
    assert isinstance(registry.create("least_loaded"), LeastLoaded)
    assert isinstance(registry.create("cost"), ByCost)
    with pytest.raises(ConfigError, match=r"'nearest' is none of cost, least_loaded, round_robin"):
        registry.create("nearest")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"liveness_s": 0.0}, "liveness_s"),
        ({"ttft_deadline_s": -1.0}, "ttft_deadline_s"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_queued": -1}, "max_queued"),
        ({"tick_s": 1.5}, "tick_s"),
    ],
)
def test_settings_that_make_no_sense_are_named(changes: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        RouterConfig(**changes)  # type: ignore[arg-type]
