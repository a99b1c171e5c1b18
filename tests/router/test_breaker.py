"""The circuit breaker by itself."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_worker import chunk_of

from splitserve.ids import HandoffId, RequestId
from splitserve.protocol.codec import Message
from splitserve.protocol.control import Failed, StepTokens
from splitserve.protocol.handoff import PrefillDone, Refuse
from splitserve.router.workers.breaker import (
    BACKOFF_S,
    MAX_BACKOFF_S,
    THRESHOLD,
    Breaker,
    BreakerState,
    spared,
    verdict,
)


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(THRESHOLD):
        breaker.failed(now)
    return breaker


def test_it_opens_at_the_threshold_and_a_success_begins_anew() -> None:
    breaker = Breaker()
    for _ in range(THRESHOLD - 1):
        breaker.failed(0.0)
    assert breaker.state(0.0) is BreakerState.CLOSED
    breaker.succeeded()
    breaker.failed(0.0)
    assert breaker.state(0.0) is BreakerState.CLOSED
    assert opened().state(0.0) is BreakerState.OPEN


def test_half_open_lets_one_probe_through_per_backoff() -> None:
    breaker = opened()
    assert not breaker.allows(BACKOFF_S * 0.9)
    assert breaker.state(BACKOFF_S) is BreakerState.HALF_OPEN
    breaker.sent(BACKOFF_S)
    assert not breaker.allows(BACKOFF_S)
    assert breaker.allows(2 * BACKOFF_S)


def test_a_probe_that_fails_doubles_the_wait_up_to_the_limit() -> None:
    breaker, now, waits = opened(), 0.0, []
    for _ in range(8):
        wait = next(s for s in range(1, 100) if breaker.allows(now + s))
        waits.append(wait)
        now += wait
        breaker.sent(now)
        breaker.failed(now)
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert waits[-1] == MAX_BACKOFF_S


def test_a_probe_that_succeeds_closes_it() -> None:
    breaker = opened()
    breaker.sent(BACKOFF_S)
    breaker.succeeded()
    assert breaker.state(BACKOFF_S) is BreakerState.CLOSED
    for _ in range(THRESHOLD):
        breaker.failed(BACKOFF_S)
    assert breaker.allows(2 * BACKOFF_S)


@given(st.lists(st.sampled_from(["sent", "failed", "wait"]), max_size=200))
def test_a_worker_that_always_fails_is_tried_ever_more_seldom(acts: list[str]) -> None:
    breaker, now, tried = Breaker(), 0.0, []
    for act in acts:
        if act == "wait":
            now += 0.5
        elif breaker.allows(now):
            breaker.sent(now)
            breaker.failed(now)
            tried.append(now)
    probes = tried[THRESHOLD:]
    assert all(later - earlier >= BACKOFF_S for earlier, later in pairwise(probes))


R = RequestId("r")


@pytest.mark.parametrize(
    ("message", "works"),
    [
        (Failed(R, "engine", ""), False),
        (Failed(R, "transfer_failed", ""), False),
        (Failed(R, "a_code_of_tomorrow", ""), False),
        (Failed(R, "invalid", ""), None),
        (Failed(R, "draining", ""), None),
        (Failed(R, "writer_lost", ""), None),
        (Refuse(HandoffId("h"), "no_blocks", "", True), None),
        (StepTokens((chunk_of("r", 0),)), None),
        (StepTokens((chunk_of("r", 0), chunk_of("q", 3, finish="stop"))), True),
        (StepTokens((chunk_of("r", 0, finish="abort"),)), None),
        (PrefillDone(R, HandoffId("h"), 1, 0.0, 0.0, 0.0), True),
    ],
)
def test_what_a_worker_says_tells_whether_it_works(message: Message, works: bool | None) -> None:
    assert verdict(message) is works


def test_open_ones_are_spared_unless_there_is_nothing_else() -> None:
    assert spared({"a": opened(), "b": Breaker()}, 0.0) == {"b"}
    assert spared({"a": opened(), "b": opened()}, 0.0) == {"a", "b"}
    assert spared({"a": opened(), "b": Breaker()}, BACKOFF_S) == {"a", "b"}
