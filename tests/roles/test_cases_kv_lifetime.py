"""Bugs that others had with the lifetime of KV, as tests of ours: grants, leases, late words."""

import pytest
from network import (
    LEASE_S,
    Network,
    abort_everywhere,
    answer_of,
    make_request,
    prefill,
    reserve,
    split_pair,
    submit,
)

from splitserve.engine.fake import fake_tokens
from splitserve.ids import HandoffId, WorkerId
from splitserve.protocol.control import Abort, Failed, Hello
from splitserve.protocol.handoff import (
    Fence,
    FenceRequest,
    KVReady,
    PrefillDone,
    Refuse,
    Reserve,
)
from splitserve.roles.port import ConnId
from splitserve.roles.prefill import STALLED_S
from splitserve.transfer.connectors.memory import MemoryConnector

PROMPT = tuple(range(20, 57))
OTHER_GATEWAY = ConnId(99)


def run_prompt(network: Network, name: str = "p") -> None:
    """Steps without delivering anything between workers."""
    while network.nodes[name].worker.has_work():
        network.nodes[name].worker.step()


def link_of(network: Network, name: str) -> ConnId:
    return next(iter(network.nodes[name].links))


def test_a_grant_that_is_never_written_lapses_and_a_late_word_of_it_is_ignored() -> None:
    """B01, B03: nobody comes to write; then the completion comes after the deadline."""
    network = split_pair()
    request = make_request("r", PROMPT)
    target = reserve(network, request)
    network.now += LEASE_S + 0.1
    network.nodes["d"].worker.tick(network.now)
    network.pump()
    assert network.idle()
    network.post("p", link_of(network, "p"), KVReady(target.handoff, target.epoch, 30))
    network.post("p", link_of(network, "p"), Fence(target.handoff, target.epoch))
    network.pump()
    assert not network.nodes["d"].worker.has_work()
    assert network.idle()


def test_a_thousand_abandoned_grants_leave_the_pool_as_it_was() -> None:
    """B03: a leak of one block a cycle would empty the pool."""
    network = split_pair()
    before = network.counts("d").free
    for i in range(1000):
        request = make_request(f"r{i}", PROMPT)
        reserve(network, request)
        network.tell("d", Abort(request.request_id))
        network.pump()
    assert network.counts("d").free == before


@pytest.mark.parametrize("steps_between", [0, 1])
def test_an_abort_just_after_the_kv_arrived_frees_at_once(steps_between: int) -> None:
    """B05: the signal to wait for has come already."""
    network = split_pair()
    request = make_request("r", PROMPT, max_tokens=50)
    prefill(network, request, reserve(network, request))
    run_prompt(network)
    network.pump()
    for _ in range(steps_between):
        network.nodes["d"].worker.step()
    network.tell("d", Abort(request.request_id))
    assert network.counts("d").idle


@pytest.mark.parametrize("order", ["fence first", "handover first", "both twice"])
def test_fence_and_handover_that_cross_free_each_block_once(order: str) -> None:
    """B06: two ends of one request, in any order."""
    network = split_pair()
    request = make_request("r", PROMPT)
    target = reserve(network, request)
    network.tell("d", Abort(request.request_id))
    words = [Fence(target.handoff, target.epoch), KVReady(target.handoff, target.epoch, 30)]
    words = {"fence first": words, "handover first": words[::-1], "both twice": words * 2}[order]
    for word in words:
        network.post("p", link_of(network, "p"), word)
    network.pump()
    assert network.idle()
    assert network.counts("d").total == 64
    submit(network, "d", make_request("next", PROMPT))
    network.step_all()
    assert network.idle()


def test_a_cancel_during_the_last_step_of_the_prompt_hands_nothing_over() -> None:
    """B08, B22: the step ends as if all were well; its end must not."""
    network = split_pair()
    for i in range(20):
        request = make_request(f"r{i}", PROMPT)
        prefill(network, request, reserve(network, request))
        network.tell("d", Abort(request.request_id))
        network.tell("p", Abort(request.request_id))  # lies behind the step in the queue
        run_prompt(network)
        network.step_all()
        assert network.idle()
        assert answer_of(network, request) == []
    assert network.said("p", PrefillDone) == []


def test_a_writer_that_cannot_start_one_write_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """B15: decode must not wait for a number of writes that can never be reached."""
    network = split_pair()
    real, count = MemoryConnector.writer, 0

    def writer(self: MemoryConnector, peer: object, runs: object) -> object:
        nonlocal count
        count += 1
        return real(self, -1 if count == 2 else peer, runs)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryConnector, "writer", writer)
    request = make_request("r", PROMPT)
    prefill(network, request, reserve(network, request))
    network.step_all()
    (failed,) = network.said("p", Failed)
    assert isinstance(failed, Failed)
    assert failed.code == "transfer_failed"
    assert network.counts("d").granted > 0  # and never used
    network.tell("d", Abort(request.request_id))
    network.pump()
    assert network.idle()


def test_writes_of_which_none_ends_are_given_up_and_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gateway learns of it in seconds; the blocks are free only when the writes have ended."""
    network = split_pair()
    request = make_request("r", PROMPT)
    with monkeypatch.context() as stalled:
        stalled.setattr(MemoryConnector, "poll", lambda _: [])
        prefill(network, request, reserve(network, request))
        run_prompt(network)
        writer = network.nodes["p"].worker
        writer.tick(STALLED_S - 0.1)
        assert network.said("p", Failed) == []
        network.now = STALLED_S
        for _ in range(2):
            writer.tick(network.now)
        (failed,) = network.said("p", Failed)
        assert isinstance(failed, Failed)
        assert failed.code == "transfer_failed"
        network.tell("d", Abort(request.request_id))
        network.pump()
        assert network.counts("d").quarantined > 0
    writer.tick(network.now)
    network.pump()
    assert network.idle()


def test_leases_are_looked_at_while_nothing_is_scheduled() -> None:
    """B16, B17: cleaning up must not need new work, nor wait for one that is stuck."""
    network = split_pair(num_blocks=16)
    reserve(network, make_request("stuck", PROMPT))
    late = make_request("late", PROMPT[::-1])
    network.tell("d", Reserve(HandoffId("late#0"), late, WorkerId("p"), LEASE_S))
    assert isinstance(network.to_gateway["d"][-1], Refuse)
    assert not network.nodes["d"].worker.has_work()
    network.now += LEASE_S + 0.1
    network.nodes["d"].worker.tick(network.now)
    network.pump()
    assert network.idle()
    prefill(network, late, reserve(network, late, attempt=1))
    network.step_all()
    assert answer_of(network, late) == fake_tokens(late.token_ids, 6)


def test_a_storm_of_aborts_at_prefill_leaves_decode_free_for_good_requests() -> None:
    """B21: each abort must reach the paired worker."""
    network = split_pair()
    for i in range(200):
        request = make_request(f"bad{i}", PROMPT)
        prefill(network, request, reserve(network, request))
        network.nodes["p"].worker.step()
        abort_everywhere(network, request)
        network.pump()
    assert network.idle()
    good = [make_request(f"good{i}", PROMPT[i:]) for i in range(5)]
    for request in good:
        prefill(network, request, reserve(network, request))
        network.step_all()
        assert answer_of(network, request) == fake_tokens(request.token_ids, 6)


def test_the_same_prompt_again_and_again_leaves_no_reference_behind() -> None:
    """B10, B27, B29: what is found in the cache already is neither pinned nor allocated anew."""
    network = split_pair(num_blocks=24)
    for i in range(12):
        request = make_request(f"r{i}", PROMPT)
        prefill(network, request, reserve(network, request))
        network.step_all()
        assert network.idle()
    other = make_request("all", tuple(range(100, 100 + 80)))  # needs nearly the whole pool
    submit(network, "d", other)
    network.step_all()
    assert answer_of(network, other) == fake_tokens(other.token_ids, 6)


def test_words_about_an_earlier_life_of_a_handoff_are_told_apart() -> None:
    """B31: the same handoff name twice; what is late belongs to the first."""
    network = split_pair()
    request = make_request("r", PROMPT)
    first = reserve(network, request)
    network.tell("d", Abort(request.request_id))
    second = reserve(network, request)
    assert second.handoff == first.handoff
    assert second.epoch != first.epoch
    network.post("p", link_of(network, "p"), KVReady(first.handoff, first.epoch, 30))
    network.post("p", link_of(network, "p"), Fence(first.handoff, first.epoch))
    network.pump()
    assert network.counts("d").granted == len(second.blocks) + _spare(second.blocks, PROMPT)
    assert not network.nodes["d"].worker.has_work()


def _spare(blocks: tuple[int, ...], prompt: tuple[int, ...]) -> int:
    """A grant has room for one position more than the prompt."""
    return -(-(len(prompt) + 1) // 4) - len(blocks)


def test_fifty_times_a_cancel_in_prefill_does_not_disturb_the_next_one() -> None:
    """B33."""
    network = split_pair(chunk=16)
    for i in range(50):
        gone, stays = make_request(f"gone{i}", PROMPT), make_request(f"stays{i}", PROMPT[1:])
        prefill(network, gone, reserve(network, gone))
        network.nodes["p"].worker.step()
        abort_everywhere(network, gone)
        prefill(network, stays, reserve(network, stays))
        network.step_all()
        assert answer_of(network, stays) == fake_tokens(stays.token_ids, 6)
        assert network.idle()


def test_a_refused_prompt_never_runs_on_at_decode() -> None:
    """B23: the writer refuses; decode has nothing to go on with."""
    network = split_pair()
    request = make_request("r", PROMPT)
    target = reserve(network, request)
    submit(network, "p", request)  # the id is in use there now
    prefill(network, request, target)
    (refusal,) = network.said("p", Refuse)
    assert isinstance(refusal, Refuse)
    assert refusal.code == "duplicate"
    network.tell("d", Abort(request.request_id))
    network.step_all()
    assert network.idle()
    assert not network.nodes["d"].worker.has_work()


def test_a_fence_asked_twice_is_answered_twice_and_frees_once() -> None:
    network = split_pair()
    request = make_request("r", PROMPT)
    target = reserve(network, request)
    network.tell("d", Abort(request.request_id))
    network.post("d", link_of(network, "d"), FenceRequest(target.handoff, target.epoch))
    network.pump()
    assert network.idle()
    assert network.counts("d").total == 64


def test_a_gateway_that_comes_back_gets_rid_of_what_its_lost_connection_left() -> None:
    """A half-open connection: the worker never saw the first one end."""
    network = split_pair()
    request = make_request("r", PROMPT, max_tokens=50)
    submit(network, "d", request)
    network.nodes["d"].worker.step()
    network.nodes["d"].worker.handle(OTHER_GATEWAY, Hello("g"))
    network.nodes["d"].worker.handle(OTHER_GATEWAY, Abort(request.request_id))
    assert not network.nodes["d"].worker.has_work()
    assert network.idle()
