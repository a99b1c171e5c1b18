"""More requests than the workers can answer, in simulated time."""

from random import Random

import pytest
from admission_sim import Ask, Outcome, Simulation, SimWorker
from hypothesis import given, settings
from hypothesis import strategies as st

SEATS = 4


def pair(*, says: bool = True) -> list[SimWorker]:
    return [SimWorker("a", SEATS, says=says), SimWorker("b", SEATS, says=says)]


def traffic(per_s: float, seconds: float, *, even: bool, seed: int = 1) -> list[Ask]:
    draw, now, asks = Random(seed), 0.0, []
    while (now := now + draw.expovariate(per_s)) < seconds:
        asks.append(Ask(now, answer_s=1.0 if even else draw.expovariate(1.0)))
    return asks


def in_time(outcome: Outcome, deadline_s: float) -> float:
    """Share of those that were let in."""
    times = outcome.first_token.values()
    return sum(time <= deadline_s for time in times) / len(times)


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("says", [True, False])
def test_at_three_times_capacity_those_let_in_are_in_time_and_no_place_is_wasted(
    says: bool, even: bool
) -> None:
    capacity, seconds, deadline_s = 2 * SEATS / 1.0, 60.0, 2.0
    at_capacity = Simulation(
        pair(says=says), traffic(capacity, seconds, even=even), deadline_s=deadline_s
    ).run()
    asks = traffic(3 * capacity, seconds, even=even)
    outcome = Simulation(pair(says=says), asks, deadline_s=deadline_s).run()
    assert in_time(outcome, deadline_s) >= in_time(at_capacity, deadline_s) - 0.05
    assert len(outcome.done) >= 0.9 * capacity * seconds
    assert len(outcome.done) + len(outcome.refused) == len(asks)
    assert set(outcome.refused) & set(outcome.done) == set()
    at_once = sum(after == 0.0 for after in outcome.refused.values())
    assert at_once >= 0.9 * len(outcome.refused)
    assert all(outcome.retry_after[n] > 0 for n in outcome.refused)


def test_slow_prompts_refuse_as_full_seats_do() -> None:
    workers = [SimWorker("a", 64, tokens_per_s=1000)]
    draw, now, asks = Random(2), 0.0, []
    while (now := now + draw.expovariate(15)) < 30:
        asks.append(Ask(now, prompt_tokens=200, answer_s=0.5))
    outcome = Simulation(workers, asks, deadline_s=2.0).run()
    assert in_time(outcome, 2.0) >= 0.95
    assert len(outcome.done) >= 0.9 * 5 * 30
    assert {outcome.reasons[n] for n in outcome.refused} == {"deadline"}


def test_before_anything_is_learned_everybody_may_wait() -> None:
    asks = [Ask(n * 1e-3, answer_s=1.0) for n in range(100)]
    simulation = Simulation(pair(), asks, deadline_s=5.0)
    outcome = simulation.run()
    assert all(after > 0 for after in outcome.refused.values())
    assert len(outcome.done) >= 5 * 2 * SEATS


def test_a_prompt_longer_than_its_deadline_still_gets_its_turn() -> None:
    workers = [SimWorker("a", 2, tokens_per_s=100)]
    small = [Ask(n * 1.0, prompt_tokens=50, answer_s=0.5) for n in range(20)]
    outcome = Simulation(workers, [*small, Ask(8.25, prompt_tokens=1000)], deadline_s=5.0).run()
    assert 20 in outcome.done


def test_refusals_of_full_workers_do_not_make_the_router_ask_all_the_time() -> None:
    asks = traffic(3 * 2 * SEATS, 30.0, even=False)
    outcome = Simulation(pair(says=False), asks, deadline_s=2.0).run()
    in_vain = sum(number < 0 for number in outcome.reasons)
    assert 0 < in_vain <= 2 * 31


def test_too_many_waiting_costs_the_last_in_line_who_need_not_be_the_last_to_come() -> None:
    asks = [Ask(0.0, owner="many", priority=1) for _ in range(2 * SEATS + 3)]
    asks.append(Ask(0.5, owner="one"))
    outcome = Simulation(pair(), asks, max_queued=3).run()
    assert list(outcome.refused) == [2 * SEATS + 2]
    assert outcome.reasons[2 * SEATS + 2] == "queue_full"
    assert outcome.order[2 * SEATS] == len(asks) - 1


def test_an_owner_with_many_requests_delays_another_by_one_a_worker() -> None:
    asks = [Ask(0.0, owner="many") for _ in range(300)]
    asks.append(Ask(1.5, owner="one"))
    outcome = Simulation(pair(), asks, deadline_s=1e6, max_queued=2000).run()
    begun = sum(1 for n, at in outcome.first_token.items() if n < 300 and at <= 1.5)
    assert outcome.order.index(300) - begun <= 2


ASKS = st.lists(
    st.builds(
        Ask,
        at=st.floats(0, 5),
        prompt_tokens=st.integers(1, 200),
        answer_s=st.floats(0.01, 3),
        priority=st.integers(0, 1),
        owner=st.sampled_from("abc"),
    ),
    max_size=40,
).map(lambda asks: sorted(asks, key=lambda ask: ask.at))


@settings(deadline=None, max_examples=60)
@given(
    asks=ASKS,
    seats=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    says=st.booleans(),
    room=st.sampled_from([300, 10**6]),
    deadline_s=st.sampled_from([1.0, 4.0, 1e6]),
    max_queued=st.integers(0, 30),
    leaving=st.sets(st.integers(0, 39), max_size=5),
)
def test_whatever_comes_each_ends_once_and_no_worker_gets_more_than_it_has(
    asks: list[Ask],
    seats: list[int],
    says: bool,
    room: int,
    deadline_s: float,
    max_queued: int,
    leaving: set[int],
) -> None:
    workers = [SimWorker(f"w{n}", s, says=says, room=room) for n, s in enumerate(seats)]
    simulation = Simulation(
        workers,
        asks,
        deadline_s=deadline_s,
        max_queued=max_queued,
        leaves=lambda n: 0.25 if n in leaving else None,
    )
    outcome = simulation.run()
    for worker, limit in zip(workers, seats, strict=True):
        assert outcome.most.get(worker.name, 0) <= limit
        assert (worker.held, worker.running) == (0, set())
    assert set(outcome.done) & set(outcome.refused) == set()
    ended = set(outcome.done) | set(outcome.refused)
    assert set(range(len(asks))) - ended <= leaving
    assert len(simulation.admission.line) == simulation.admission.line.tokens == 0
    if says:
        assert all(number >= 0 for number in outcome.reasons)
    for key in {(ask.owner, ask.priority) for ask in asks}:
        own = [n for n in outcome.order if (asks[n].owner, asks[n].priority) == key]
        assert own == sorted(own)
