"""Whether to split, from what splitting and not splitting took before."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.ids import WorkerId
from splitserve.router.policy.base import (
    Estimate,
    Held,
    Observation,
    Placement,
    RequestView,
    WorkerView,
)
from splitserve.router.policy.cost import ByCost
from splitserve.router.policy.least_loaded import LeastLoaded
from splitserve.router.policy.probes import EARLY_EVERY, EVERY

P, D = WorkerId("p"), WorkerId("d")
LENGTHS = range(20, 2000, 60)
IDLE_PREFILL = WorkerView(P, "prefill", 0, 0, 0, 0, 10**6)
IDLE_DECODE = WorkerView(D, "decode", 0, 0, 0, 0, 10**6, linked=(P,))

Law = Callable[[int], float]


@dataclass
class Laws:
    """What things take, in seconds by tokens."""

    whole: Law = lambda n: 0.01 + 0.001 * n
    prefill: Law = lambda n: 0.01 + 0.001 * n
    exposed: Law = lambda n: 0.002 + 0.0001 * n
    grant_s: float = 0.003

    def split(self, tokens: int) -> float:
        return self.prefill(tokens) + self.exposed(tokens) + self.grant_s

    def outcome(self, placement: Placement, tokens: int) -> Observation:
        if placement.prefill is None:
            return Observation(placement, tokens, self.whole(tokens))
        return Observation(
            placement,
            tokens,
            self.split(tokens),
            0.0,
            self.prefill(tokens),
            self.exposed(tokens),
        )


def taught(laws: Laws) -> ByCost:
    """A policy that has seen both ways for prompts of all lengths."""
    policy, blank = ByCost(), Estimate(0, None, None)
    for tokens in LENGTHS:
        for prefill in (None, P):
            policy.observed(laws.outcome(Placement(D, prefill, "", blank), tokens))
    return policy


def place(
    policy: ByCost,
    tokens: int,
    *,
    decode: WorkerView = IDLE_DECODE,
    prefill: WorkerView = IDLE_PREFILL,
    now: float = 0.0,
) -> Placement:
    placement = policy.place(RequestView(tokens, 10), [prefill, decode], now)
    assert placement is not None
    return placement


def test_idle_decode_computes_a_short_prompt_itself_when_both_are_as_fast() -> None:
    placement = place(taught(Laws()), 50)
    assert (placement.decode, placement.prefill) == (D, None)


@pytest.mark.parametrize(
    "busy",
    [
        replace(IDLE_DECODE, running=3),
        replace(IDLE_DECODE, in_flight=3),
        replace(IDLE_DECODE, waiting=3),
        replace(IDLE_DECODE, waiting_tokens=400),
    ],
    ids=["running", "sent", "waiting", "prompts"],
)
def test_busy_decode_splits(busy: WorkerView) -> None:
    assert place(taught(Laws()), 50, decode=busy).prefill == P


def test_the_more_answers_run_the_shorter_the_prompts_that_may_hold_them_up() -> None:
    laws = Laws(whole=lambda n: 0.0005 * n, grant_s=0.1)
    longest = []
    for running in (1, 2, 4, 8):
        policy, decode = taught(laws), replace(IDLE_DECODE, running=running)
        whole = [n for n in LENGTHS if place(policy, n, decode=decode).prefill is None]
        longest.append(max(whole, default=0))
    assert longest == sorted(longest, reverse=True)
    assert longest[0] > longest[-1] > 0


def test_prompts_that_wait_at_prefill_make_decode_the_faster_way() -> None:
    laws, decode = Laws(), replace(IDLE_DECODE, running=1)
    assert place(taught(laws), 400, decode=decode).prefill == P
    queued = replace(IDLE_PREFILL, waiting=2, waiting_tokens=1500)
    assert place(taught(laws), 400, decode=decode, prefill=queued).prefill is None


def test_what_will_come_meanwhile_counts_too() -> None:
    laws = Laws(exposed=lambda n: 0.0, grant_s=0.005)
    assert place(taught(laws), 1500).prefill is None
    policy = taught(laws)
    for i in range(100):
        place(policy, 1500, now=i * 0.2)
    assert place(policy, 1500, now=20.0).prefill == P
    assert place(policy, 1500, now=400.0).prefill is None


def test_a_full_prefill_worker_is_not_waited_for_where_decode_is_cheaper() -> None:
    full = replace(IDLE_PREFILL, accepts=False, waiting_tokens=2000)
    placement = place(taught(Laws()), 100, prefill=full)
    assert placement.prefill is None
    assert placement.reason.startswith("whole (prefill is full): ")


def test_a_full_prefill_worker_is_waited_for_where_it_is_still_cheaper() -> None:
    full = replace(IDLE_PREFILL, accepts=False, waiting_tokens=100)
    busy = replace(IDLE_DECODE, running=20)
    assert taught(Laws()).place(RequestView(500, 10), [full, busy], 0.0) is None


def test_the_reason_gives_milliseconds_of_both_ways() -> None:
    laws = Laws(lambda n: 0.05, lambda n: 0.02, lambda n: 0.004, grant_s=0.003)
    placement = place(taught(laws), 100, decode=replace(IDLE_DECODE, running=2))
    assert placement.reason == (
        "split: whole 50.0 ms and 100.0 ms of others', split 27.0 ms (queue 0.0 ms, "
        "prefill 20.0 ms, transfer 4.0 ms, grant 3.0 ms); "
        "decode costs 2 of 1 with room, prefill costs 0 of 1 linked"
    )
    assert placement.estimate == Estimate(0, pytest.approx(0.05), pytest.approx(0.027))
    assert Observation(placement, 100, 0.03).predicted_s == pytest.approx(0.027)


def test_before_anything_is_known_the_reason_says_so() -> None:
    placement = place(ByCost(), 100)
    assert placement.prefill == P
    assert placement.reason.startswith("split: whole not known yet, split not known yet; ")
    assert Observation(placement, 100, 0.03).predicted_s is None


def test_a_way_that_is_not_known_is_tried_with_every_fourth_short_prompt_on_idle_workers() -> None:
    policy = ByCost()
    whole = [place(policy, 100).prefill is None for _ in range(3 * EARLY_EVERY)]
    later = [place(policy, 100).prefill is None for _ in range(EARLY_EVERY)]
    assert sum(whole) == 2  # the first prompt could not be told to be short
    assert sum(later) == 1


def test_while_nothing_is_known_probes_hold_nobody_up() -> None:
    policy, busy = ByCost(), replace(IDLE_DECODE, running=1)
    assert all(place(policy, 100, decode=busy).prefill == P for _ in range(5 * EARLY_EVERY))


def test_a_busy_decode_worker_is_probed_where_it_would_be_cheaper_if_it_were_fast() -> None:
    """Or a crowded prefill worker would never be relieved: decode is not idle then."""
    laws = Laws(whole=lambda n: 100.0)
    policy, busy = taught(laws), replace(IDLE_DECODE, running=2)
    queued = replace(IDLE_PREFILL, waiting=3, waiting_tokens=3000)
    placed = [
        place(policy, 100, decode=busy, prefill=queued, now=60.0 * i) for i in range(3 * EVERY)
    ]
    assert sum(p.prefill is None for p in placed) in (2, 3)
    calm = [place(policy, 100, decode=busy, now=60.0 * i) for i in range(3 * EVERY)]
    assert all(p.prefill == P for p in calm)


def test_probes_are_never_longer_than_usual() -> None:
    policy = ByCost()
    placed = [(n, place(policy, n).prefill) for _ in range(40) for n in (50, 60, 2000)]
    assert {n for n, prefill in placed if prefill is None} <= {50, 60}
    assert any(prefill is None for _, prefill in placed)


@pytest.mark.parametrize("whole_s", [0.001, 10.0], ids=["whole-cheaper", "split-cheaper"])
def test_the_dearer_way_is_measured_again_now_and_then(whole_s: float) -> None:
    policy = taught(Laws(whole=lambda n: whole_s))
    cheaper = whole_s < 1
    rounds = 10
    placed = [place(policy, 100, now=60.0 * i) for i in range(rounds * EVERY)]
    probes = [p for p in placed if (p.prefill is None) != cheaper]
    assert rounds - 1 <= len(probes) <= rounds
    assert all("(probe): " in p.reason for p in probes)


def test_a_decode_worker_that_has_become_fast_is_found_out() -> None:
    slow, fast = Laws(whole=lambda n: 1 + 0.01 * n), Laws()
    policy, rng = taught(slow), random.Random(3)
    decisions = []
    for i in range(80 * EVERY):
        tokens = rng.randint(20, 400)
        placement = place(policy, tokens, now=60.0 * i)
        policy.observed(fast.outcome(placement, tokens))
        decisions.append(placement.prefill is None)
    assert not any(decisions[: EVERY - 1])
    assert sum(decisions[-EVERY:]) >= EVERY - 2


def test_placements_that_were_not_weighed_teach_nothing() -> None:
    policy = ByCost()
    for tokens in LENGTHS:
        policy.observed(Observation(Placement(D, None, "colocated"), tokens, 0.001))
    assert "whole not known yet" in place(policy, 100).reason


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.floats(0.2, 5.0), st.floats(0.0, 0.1))
def test_it_learns_to_choose_the_cheaper_way(seed: int, ratio: float, grant_s: float) -> None:
    """From nothing, through what its own choices bring; noise of a tenth."""
    laws, policy, rng = Laws(grant_s=grant_s), ByCost(), random.Random(seed)
    laws.whole = lambda n: ratio * (0.01 + 0.001 * n)
    paid = best = 0.0
    for i in range(400):
        tokens = rng.randint(20, 1000)
        decode = replace(IDLE_DECODE, running=rng.choice((0, 0, 1, 4)))
        placement = place(policy, tokens, decode=decode, now=60.0 * i)
        whole_s = laws.whole(tokens) * (1 + decode.running)
        split_s = laws.split(tokens)
        seen = laws.outcome(placement, tokens)
        factor = rng.uniform(0.9, 1.1)
        policy.observed(
            replace(
                seen,
                took_s=seen.took_s * factor,
                prefill_s=seen.prefill_s * factor,
                exposed_s=seen.exposed_s * factor,
            )
        )
        if i >= 200:
            paid += whole_s if placement.prefill is None else split_s
            best += min(whole_s, split_s)
    assert paid <= 1.15 * best


names = st.sampled_from([WorkerId(f"w{i}") for i in range(6)])


@st.composite
def fleets(draw: st.DrawFn) -> list[WorkerView]:
    """Any workers in any state."""
    few = st.integers(0, 5)
    return [
        WorkerView(
            worker=name,
            role=draw(st.sampled_from(("prefill", "decode", "colocated"))),
            in_flight=draw(few),
            running=draw(few),
            waiting=draw(few),
            waiting_tokens=draw(st.integers(0, 3000)),
            free_tokens=draw(st.sampled_from((0, 50, 100, 101, 10**6))),
            linked=tuple(draw(st.sets(names))),
            accepts=draw(st.booleans()),
        )
        for name in sorted(draw(st.sets(names)))
    ]


@settings(max_examples=60)
@given(st.lists(fleets(), max_size=5), st.booleans())
def test_no_full_worker_is_ever_chosen(rounds: list[list[WorkerView]], known: bool) -> None:
    policy = taught(Laws()) if known else ByCost()
    for workers in rounds:
        by_name = {w.worker: w for w in workers}
        placement = policy.place(RequestView(100, 10), workers, 0.0)
        if placement is None:
            continue
        decode = by_name[placement.decode]
        assert decode.accepts
        assert decode.free_tokens > 100
        if placement.prefill is not None:
            assert by_name[placement.prefill].accepts
            assert placement.prefill in decode.linked


@settings(max_examples=80)
@given(st.lists(fleets(), max_size=EARLY_EVERY))
def test_while_nothing_is_known_it_chooses_as_least_loaded(rounds: list[list[WorkerView]]) -> None:
    """So few requests bring no probe."""
    policy, plain = ByCost(), LeastLoaded()
    for workers in rounds:
        chosen, expected = (p.place(RequestView(100, 10), workers, 0.0) for p in (policy, plain))
        assert (chosen is None) == (expected is None)
        if chosen is not None and expected is not None:
            assert (chosen.decode, chosen.prefill) == (expected.decode, expected.prefill)


@settings(max_examples=60)
@given(fleets())
def test_with_a_choice_of_workers_it_takes_those_least_loaded_does(
    workers: list[WorkerView],
) -> None:
    chosen = taught(Laws()).place(RequestView(100, 10), workers, 0.0)
    expected = LeastLoaded().place(RequestView(100, 10), workers, 0.0)
    if expected is not None:
        assert chosen is not None
        assert chosen.decode == expected.decode
        assert chosen.prefill in (expected.prefill, None)


def test_what_decode_has_cached_makes_it_the_faster_way() -> None:
    busy = replace(IDLE_DECODE, running=3)
    plain = RequestView(500, 10)
    cached = replace(plain, held=Held({D: 480}))
    split, whole = (
        taught(Laws()).place(request, [IDLE_PREFILL, busy], 0.0) for request in (plain, cached)
    )
    assert split is not None
    assert whole is not None
    assert (split.prefill, whole.prefill) == (P, None)
    assert whole.reason.endswith("; prefix of 480 tokens at decode, 0 at prefill")
    assert (whole.decode_cached_tokens, whole.prefill_cached_tokens) == (480, 0)
    assert whole.estimate is not None
    assert whole.estimate.whole_s == pytest.approx(Laws().whole(20), rel=0.01)
    assert whole.estimate.split_s == pytest.approx(
        Laws().prefill(500) + Laws().exposed(20) + Laws().grant_s, rel=0.01
    )


def test_what_prefill_has_cached_is_not_computed_and_moved_all_the_same() -> None:
    laws, request = Laws(), RequestView(500, 10, held=Held({P: 480}))
    placement = taught(laws).place(request, [IDLE_PREFILL, IDLE_DECODE], 0.0)
    assert placement is not None
    assert placement.estimate is not None
    assert placement.estimate.whole_s == pytest.approx(laws.whole(500), rel=0.01)
    assert placement.estimate.split_s == pytest.approx(
        laws.prefill(20) + laws.exposed(500) + laws.grant_s, rel=0.01
    )


def test_it_learns_from_the_tokens_that_were_computed_or_moved() -> None:
    laws, policy, blank, cached = Laws(), ByCost(), Estimate(0, None, None), 1000
    whole = Placement(D, None, "", blank, 1000)
    split = Placement(D, P, "", blank, 1000, 1000)
    for tokens in LENGTHS:
        for placement in (whole, split):
            seen = laws.outcome(placement, tokens)
            policy.observed(replace(seen, prompt_tokens=tokens + cached, cached_tokens=cached))
    estimate = place(policy, 500).estimate
    assert estimate is not None
    assert estimate.whole_s == pytest.approx(laws.whole(500), rel=0.01)
    assert estimate.split_s == pytest.approx(laws.split(500), rel=0.01)


@pytest.mark.parametrize(
    ("prefill", "told", "computed"),
    [(None, None, 900), (P, None, 700), (None, 0, 1000), (P, 250, 750), (P, 2000, 0)],
)
def test_what_was_computed_is_what_was_told_or_else_what_was_expected(
    prefill: WorkerId | None, told: int | None, computed: int
) -> None:
    placement = Placement(D, prefill, "", None, 100, 300)
    seen = Observation(placement, 1000, 0.5, cached_tokens=told)
    assert (seen.computed_tokens, seen.moved_tokens) == (computed, 900)
