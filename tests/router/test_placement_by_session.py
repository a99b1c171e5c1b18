"""What the client says belongs together goes to the same workers, if nothing speaks against it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from router_bench import Bench, until
from scripted_worker import ScriptedWorker
from test_placement_by_prefix import (
    FIRST,
    OTHER,
    Prefills,
    ask,
    grant,
    pair,
    turn,
)

from splitserve.ids import WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.router.policy.affinity import MOST_EXTRA
from splitserve.router.policy.base import (
    Held,
    LastTurn,
    Placement,
    Policy,
    RequestView,
    WorkerView,
)
from splitserve.router.policy.cost import ByCost
from splitserve.router.policy.least_loaded import LeastLoaded
from splitserve.router.policy.round_robin import RoundRobin

FOLLOWING = [LeastLoaded, ByCost]
THIRD = tuple(range(900, 900 + len(FIRST)))


def of_session(name: str, tokens: Sequence[int], session: str) -> GenerateRequest:
    return msgspec.structs.replace(turn(name, tokens), session=session)


def view(name: str, role: str = "colocated", **changes: Any) -> WorkerView:
    return replace(WorkerView(WorkerId(name), role, 0, 0, 0, 0, 100_000), **changes)


def place(policy: Policy, request: RequestView, *workers: WorkerView) -> Placement:
    placement = policy.place(request, workers, 0.0)
    assert placement is not None
    return placement


@pytest.mark.parametrize("make", FOLLOWING)
def test_the_worker_of_the_last_turn_is_taken_again(make: type[Policy]) -> None:
    policy, workers = make(), [view("a"), view("b"), view("c")]
    request = RequestView(5000, 10, last=LastTurn(WorkerId("b")))
    assert [place(policy, request, *workers).decode for _ in range(4)] == ["b"] * 4


@pytest.mark.parametrize("make", FOLLOWING)
@pytest.mark.parametrize(
    "changes",
    [
        {"free_tokens": 100},
        {"accepts": False},
        {"in_flight": MOST_EXTRA + 1},
        {"waiting_tokens": 5000},
    ],
    ids=["no room", "accepts nothing", "many requests", "many tokens"],
)
def test_one_that_is_full_is_passed_over(make: type[Policy], changes: dict[str, Any]) -> None:
    request = RequestView(5000, 10, last=LastTurn(WorkerId("b")))
    assert place(make(), request, view("a"), view("b", **changes)).decode == "a"


@pytest.mark.parametrize("make", FOLLOWING)
@pytest.mark.parametrize("last", ["gone", ""])
def test_one_that_is_not_there_is_passed_over(make: type[Policy], last: str) -> None:
    request = RequestView(5000, 10, last=LastTurn(WorkerId(last), WorkerId(last)))
    assert place(make(), request, view("a"), view("b")).decode == "a"


@pytest.mark.parametrize("make", FOLLOWING)
def test_what_is_known_of_prefixes_goes_before_the_hint(make: type[Policy]) -> None:
    held = Held({WorkerId("a"): 4096})
    request = RequestView(5000, 10, held=held, last=LastTurn(WorkerId("b")))
    for workers in ([view("a"), view("b")], [view("a", in_flight=1), view("b")]):
        assert place(make(), request, *workers).decode == "a"


def test_turns_go_round_where_that_was_asked_for() -> None:
    policy = RoundRobin()
    request = RequestView(5000, 10, last=LastTurn(WorkerId("b")))
    placed = [place(policy, request, view("a"), view("b")).decode for _ in range(4)]
    assert placed == ["a", "b", "a", "b"]


@pytest.mark.parametrize("make", FOLLOWING)
def test_the_prefill_worker_of_the_last_turn_is_taken_again(make: type[Policy]) -> None:
    names = tuple(map(WorkerId, ("p", "q")))
    policy = make()
    workers = [view("p", "prefill"), view("q", "prefill"), view("d", "decode", linked=names)]
    request = RequestView(5000, 10, last=LastTurn(WorkerId("d"), WorkerId("q")))
    assert [place(policy, request, *workers).prefill for _ in range(3)] == ["q"] * 3
    busy = [view("p", "prefill"), view("q", "prefill", waiting_tokens=6000), workers[2]]
    assert place(policy, request, *busy).prefill == "p"


async def test_prompts_without_a_common_start_stay_together_by_their_session(bench: Bench) -> None:
    router, _ = await pair(bench)
    for name, tokens, session in (("a", FIRST, "s"), ("b", OTHER, "s"), ("c", THIRD, "t")):
        await ask(router, of_session(name, tokens, session))
    first, second, other = bench.notes.placements
    assert second.decode == first.decode != other.decode


async def test_both_workers_of_a_split_turn_are_remembered(bench: Bench) -> None:
    linked = ("p0", "p1")
    decodes = [
        await bench.worker(name, "decode", on_order=grant, linked=linked) for name in ("d0", "d1")
    ]
    prefills = Prefills(decodes)
    for name in linked:
        await bench.worker(name, "prefill", on_order=prefills)
    router = await bench.router()
    for name, tokens, session in (("a", FIRST, "s"), ("b", OTHER, "t"), ("c", THIRD, "s")):
        await ask(router, of_session(name, tokens, session))
    first, other, second = bench.notes.placements
    assert (second.decode, second.prefill) == (first.decode, first.prefill)
    assert other.decode != first.decode


async def test_a_session_goes_on_where_its_worker_is_lost(bench: Bench) -> None:
    router, workers = await pair(bench)
    await ask(router, of_session("a", FIRST, "s"))
    (first,) = bench.notes.placements
    lost: ScriptedWorker = next(worker for worker in workers if worker.name == first.decode)
    await lost.stop()
    await until(lambda: len(router.workers.views()) == 1)
    await ask(router, of_session("b", OTHER, "s"))
    assert bench.notes.placements[-1].decode != first.decode
