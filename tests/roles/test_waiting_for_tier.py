"""Prompts that wait for the host's KV tier: what they hold, and every way in which they end."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from network import (
    LEASE_S,
    Network,
    abort_everywhere,
    answer_of,
    make_request,
    prefill,
    reserve,
    submit,
)
from scripted_tier import COUNTS, Scripted

from splitserve.engine.api import Engine
from splitserve.engine.core import EngineCore
from splitserve.engine.fake import fake_tokens
from splitserve.errors import CallerError
from splitserve.protocol.control import Began, Failed, Hello, StepTokens, Submit
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.handoff import PrefillDone, Refuse
from splitserve.protocol.telemetry import TierCounts
from splitserve.roles.departure import LINGER_S
from splitserve.roles.tiering import BlockTier
from splitserve.tier.config import TierConfig
from splitserve.tier.copier import HostBlockCopier
from splitserve.tier.opening import Tier, open_tier

PROMPT = tuple(range(20, 41))
"""21 tokens: five blocks and one more."""

SHORT = (90, 91, 92)
"""Less than a block: nothing is asked for it."""

SPLIT = pytest.mark.parametrize("name", ["p", "c"], ids=["prefill", "colocated"])


@pytest.fixture
def tier() -> Scripted:
    return Scripted()


def make_network(tier: Scripted, depth: int = 1) -> Network:
    """``p`` hands over to ``d``, ``c`` serves whole; only one of ``p`` and ``c`` is used, and it
    has the tier."""
    network = Network()
    network.add("p", "prefill", depth=depth, tier=lambda _: tier)
    network.add("c", "colocated", depth=depth, tier=lambda _: tier)
    network.add("d", "decode", depth=depth)
    for name in ("p", "c", "d"):
        network.tell(name, Hello("g"))
    network.pair("p", "d")
    return network


def ask(network: Network, name: str, request: GenerateRequest, attempt: int = 0) -> None:
    """The request goes to worker ``name``."""
    if name == "c":
        submit(network, "c", request)
    else:
        prefill(network, request, reserve(network, request, attempt))


def tick(network: Network, name: str) -> None:
    network.nodes[name].worker.tick(network.now)
    network.pump()


def let_go(network: Network, name: str, tier: Scripted) -> None:
    """The tier has found nothing."""
    tier.find_nothing()
    tick(network, name)


def wait_in(network: Network, name: str) -> GenerateRequest:
    """A request that waits."""
    request = make_request("r", PROMPT)
    ask(network, name, request)
    worker = network.nodes[name].worker
    assert worker.transfers_pending()
    assert not worker.has_work()
    assert network.counts(name).held > 0
    return request


def failures(network: Network, name: str) -> list[Failed]:
    return [message for message in network.said(name, Failed) if isinstance(message, Failed)]


def began(network: Network, name: str) -> list[Began]:
    frames = network.said(name, StepTokens)
    return [told for frame in frames if isinstance(frame, StepTokens) for told in frame.began]


@SPLIT
def test_others_go_on_and_it_is_answered_when_the_tier_is_done(
    name: str, tier: Scripted, depth: int
) -> None:
    network = make_network(tier, depth)
    request, other = wait_in(network, name), make_request("other", SHORT)
    ask(network, name, other)
    network.step_all()
    assert answer_of(network, other) == fake_tokens(SHORT, 6)
    assert answer_of(network, request) == []
    let_go(network, name, tier)
    network.step_all()
    assert answer_of(network, request) == fake_tokens(PROMPT, 6)
    assert network.nodes[name].worker.load().computed_tokens == len(PROMPT) + len(SHORT)
    while tier.keep():
        tick(network, name)
    assert network.idle()


@SPLIT
def test_the_time_counts_as_waiting(name: str, tier: Scripted) -> None:
    network = make_network(tier)
    wait_in(network, name)
    network.now += 0.5
    let_go(network, name, tier)
    network.step_all()
    (told,) = began(network, name)
    assert told.queue_s is not None
    assert told.queue_s >= 0.5
    for done in network.said(name, PrefillDone):
        assert isinstance(done, PrefillDone)
        assert done.queue_s == 0.5


def test_its_lease_is_renewed(tier: Scripted) -> None:
    network = make_network(tier)
    wait_in(network, "p")
    assert list(network.nodes["p"].worker.renewals().values()) == [("r#0",)]


def test_an_answer_that_goes_on_here_does_not_wait(tier: Scripted, depth: int) -> None:
    network = make_network(tier, depth)
    request, whole = make_request("r", PROMPT), fake_tokens(PROMPT, 6)
    network.tell("c", Submit(request, tuple(whole[:2])))
    assert tier.loads == {}
    network.step_all()
    frames = network.said("c", StepTokens)
    chunks = [c for frame in frames if isinstance(frame, StepTokens) for c in frame.chunks]
    assert [token for chunk in chunks for token in chunk.token_ids] == whole[2:]


@SPLIT
def test_an_abort_ends_it_at_once_and_gives_its_blocks_back_with_the_load(
    name: str, tier: Scripted, depth: int
) -> None:
    network = make_network(tier, depth)
    request = wait_in(network, name)
    abort_everywhere(network, request)
    network.step_all()
    assert tier.cancelled == list(tier.loads)
    assert network.counts("d").idle  # nothing writes there, so it was fenced
    assert network.counts(name).held > 0
    let_go(network, name, tier)
    network.step_all()
    assert network.idle()
    assert answer_of(network, request) == []
    assert failures(network, name) == []
    assert not network.nodes[name].worker.transfers_pending()


@SPLIT
def test_its_name_can_be_used_again_after_an_abort(name: str, tier: Scripted) -> None:
    network = make_network(tier)
    abort_everywhere(network, wait_in(network, name))
    network.step_all()
    again = make_request("r", SHORT)
    ask(network, name, again, attempt=1)
    let_go(network, name, tier)
    network.step_all()
    assert answer_of(network, again) == fake_tokens(SHORT, 6)
    assert network.idle()


def test_while_it_waits_its_name_is_in_use(tier: Scripted) -> None:
    network = make_network(tier)
    submit(network, "c", wait_in(network, "c"))
    (failed,) = failures(network, "c")
    assert failed.code == "duplicate"
    assert len(tier.loads) == 1


def test_a_prefill_that_is_asked_for_twice_waits_once(tier: Scripted) -> None:
    network = make_network(tier)
    request = make_request("r", PROMPT)
    target = reserve(network, request)
    for _ in range(2):
        prefill(network, request, target)
    (refusal,) = network.said("p", Refuse)
    assert isinstance(refusal, Refuse)
    assert refusal.code == "duplicate"
    assert len(tier.loads) == 1


@SPLIT
def test_a_lost_gateway_ends_it(name: str, tier: Scripted) -> None:
    network = make_network(tier)
    wait_in(network, name)
    network.lose_gateway()
    network.step_all()
    assert tier.cancelled == list(tier.loads)
    let_go(network, name, tier)
    assert network.idle()


def test_a_lease_that_ran_out_is_fenced_at_once(tier: Scripted) -> None:
    network = make_network(tier)
    wait_in(network, "p")
    network.now += LEASE_S + 0.1
    tick(network, "d")
    assert network.counts("d").idle
    assert tier.cancelled == list(tier.loads)
    let_go(network, "p", tier)
    assert network.idle()


def test_a_lost_decode_worker_ends_it(tier: Scripted) -> None:
    network = make_network(tier)
    wait_in(network, "p")
    network.kill("d")
    (failed,) = failures(network, "p")
    assert (failed.request_id, failed.code) == ("r", "decode_lost")
    assert tier.cancelled == list(tier.loads)
    let_go(network, "p", tier)
    assert network.idle()


@SPLIT
def test_a_leaving_worker_stays_for_it(name: str, tier: Scripted, depth: int) -> None:
    network = make_network(tier, depth)
    request = wait_in(network, name)
    worker = network.nodes[name].worker
    worker.drain(30.0)
    network.now += LINGER_S
    tick(network, name)
    assert not worker.drained
    let_go(network, name, tier)
    assert not worker.drained
    network.step_all()
    assert answer_of(network, request) == fake_tokens(PROMPT, 6)
    assert worker.drained


@SPLIT
def test_a_worker_that_has_to_leave_hands_it_over(name: str, tier: Scripted) -> None:
    network = make_network(tier)
    wait_in(network, name)
    worker = network.nodes[name].worker
    worker.drain(0.0)
    tick(network, name)
    (failed,) = failures(network, name)
    assert (failed.request_id, failed.code) == ("r", "draining")
    assert tier.cancelled == list(tier.loads)
    network.now += LINGER_S
    assert worker.drained  # the load ends with the tier, before the pool


@SPLIT
def test_a_prompt_that_is_refused_in_the_end_is_told_as_failed(
    name: str, tier: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = make_network(tier)
    request = wait_in(network, name)

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise CallerError("a test said so", param="prompt")

    with monkeypatch.context() as patched:
        patched.setattr(EngineCore, "add", refuse)
        let_go(network, name, tier)
    (failed,) = failures(network, name)
    assert (failed.request_id, failed.code) == ("r", "invalid")
    assert (failed.reason, failed.param) == ("a test said so", "prompt")
    abort_everywhere(network, request)
    network.step_all()
    assert network.idle()
    assert network.nodes[name].worker.renewals() == {}


def test_a_prompt_that_can_never_run_is_refused_at_once(tier: Scripted) -> None:
    network = make_network(tier)
    submit(network, "c", make_request("r", tuple(range(20, 320))))
    (failed,) = failures(network, "c")
    assert failed.request_id == "r"
    assert tier.loads == {}
    again = make_request("r", SHORT)
    submit(network, "c", again)
    network.step_all()
    assert failures(network, "c") == [failed]
    assert answer_of(network, again) == fake_tokens(SHORT, 6)


def test_what_the_tier_did_is_told_with_the_load(tier: Scripted) -> None:
    network = make_network(tier)
    assert network.nodes["c"].worker.load().tier == (
        TierCounts(
            "memory", COUNTS.hits, COUNTS.misses, COUNTS.nbytes, COUNTS.evictions, COUNTS.corrupt
        ),
    )
    assert network.nodes["d"].worker.load().tier == ()


# Over a real one


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Callable[[Engine], BlockTier]]:
    """Opens the tier of a worker; all of them are on one disk."""
    opened: list[Tier] = []

    def make(engine: Engine) -> BlockTier:
        info = engine.describe()
        (region,) = engine.regions()
        config = TierConfig(disk_path=tmp_path / "kv", disk_bytes=1 << 20)
        tier = open_tier(
            config,
            info.content_hash,
            info.layout,
            lambda: HostBlockCopier(region, info.layout),
        )
        assert tier is not None
        opened.append(tier)
        return tier.thread

    yield make
    for tier in opened:
        tier.close()


def settle(network: Network, name: str) -> None:
    """Until nothing is under way between the worker and its tier."""
    tick(network, name)
    while network.nodes[name].worker.transfers_pending():
        time.sleep(0.0005)  # lets the tier's thread run
        tick(network, name)


def test_a_prefill_worker_finds_what_another_worker_of_the_host_computed(
    real: Callable[[Engine], BlockTier], depth: int
) -> None:
    network = Network()
    network.add("c", "colocated", depth=depth, tier=real)
    network.add("p", "prefill", depth=depth, tier=real)
    network.add("d", "decode", depth=depth)
    for name in ("c", "p", "d"):
        network.tell(name, Hello("g"))
    network.pair("p", "d")
    first, second = make_request("first", PROMPT), make_request("second", PROMPT)
    submit(network, "c", first)
    settle(network, "c")
    network.step_all()
    settle(network, "c")
    ask(network, "p", second)
    settle(network, "p")
    network.step_all()
    assert answer_of(network, first) == answer_of(network, second) == fake_tokens(PROMPT, 6)
    load = network.nodes["p"].worker.load()
    assert load.computed_tokens == 1
    assert [(level.level, level.hits) for level in load.tier] == [("disk", 5)]
    settle(network, "p")
    assert network.idle()
