"""Two workers, one request: grant, push, hand over; and every way it can end early."""

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

from splitserve.engine.fake import FakeConfig, fake_tokens
from splitserve.ids import HandoffId, WorkerId
from splitserve.protocol.control import Abort, Failed, Hello, Submit, Welcome
from splitserve.protocol.handoff import (
    KVReady,
    Prefill,
    PrefillDone,
    Refuse,
    Renew,
    Reserve,
)
from splitserve.protocol.sampling import SamplingParams

PROMPT = tuple(range(20, 57))


def expected(prompt: tuple[int, ...], count: int) -> list[int]:
    return fake_tokens(prompt, count)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 31, 32, 33, 64, 101])
def test_split_answer_is_the_colocated_one(length: int, depth: int) -> None:
    network = split_pair(depth=depth)
    request = make_request("r", tuple(range(20, 20 + length)))
    prefill(network, request, reserve(network, request))
    network.step_all()
    assert answer_of(network, request) == expected(request.token_ids, 6)
    assert network.idle()


def test_first_token_leaves_from_prefill_and_the_rest_from_decode(depth: int) -> None:
    network = split_pair(depth=depth)
    request = make_request("r", PROMPT)
    prefill(network, request, reserve(network, request))
    network.step_all()
    counts = {name: len(answer_of(_only(network, name), request)) for name in ("p",)}
    assert counts == {"p": 1}
    (done,) = network.said("p", PrefillDone)
    assert isinstance(done, PrefillDone)
    assert done.kv_bytes >= len(PROMPT) // 4 * FakeConfig(block_size=4).layout.block_bytes


def _only(network: Network, name: str) -> Network:
    alone = Network()
    alone.to_gateway = {name: network.to_gateway[name]}
    return alone


def test_the_second_identical_prompt_moves_only_the_last_block(depth: int) -> None:
    network = split_pair(depth=depth)
    first, second = make_request("a", PROMPT), make_request("b", PROMPT)
    prefill(network, first, reserve(network, first))
    network.step_all()
    target = reserve(network, second)
    assert target.skip_blocks == len(PROMPT) // 4
    assert len(target.blocks) == 1
    prefill(network, second, target)
    network.step_all()
    assert answer_of(network, second) == expected(PROMPT, 6)
    assert network.idle()


def test_an_answer_that_ends_with_its_first_token_gives_the_grant_back(depth: int) -> None:
    network = split_pair(depth=depth)
    request = make_request("r", PROMPT, max_tokens=1)
    prefill(network, request, reserve(network, request))
    network.step_all()
    assert answer_of(network, request) == expected(PROMPT, 1)
    assert network.counts("d").granted > 0
    network.tell("d", Abort(request.request_id))
    network.step_all()
    assert network.idle()


def test_reserve_needs_a_linked_writer() -> None:
    network = Network()
    network.add("d", "decode")
    request = make_request("r", PROMPT)
    network.tell("d", Reserve(HandoffId("r#0"), request, WorkerId("p"), LEASE_S))
    (refusal,) = network.said("d", Refuse)
    assert isinstance(refusal, Refuse)
    assert (refusal.code, refusal.retryable) == ("not_linked", True)


def test_a_prompt_that_never_fits_is_refused_for_good(depth: int) -> None:
    network = split_pair(depth=depth)
    request = make_request("r", tuple(range(20, 21 + 64 * 4)))
    network.tell("d", Reserve(HandoffId("r#0"), request, WorkerId("p"), LEASE_S))
    (refusal,) = network.said("d", Refuse)
    assert isinstance(refusal, Refuse)
    assert (refusal.code, refusal.retryable) == ("too_long", False)


def test_no_room_is_refused_for_now_and_granted_later(depth: int) -> None:
    network = split_pair(depth=depth, num_blocks=16)
    first, second = make_request("a", PROMPT), make_request("b", PROMPT[::-1])
    target = reserve(network, first)
    network.tell("d", Reserve(HandoffId("b#0"), second, WorkerId("p"), LEASE_S))
    (refusal,) = network.said("d", Refuse)
    assert isinstance(refusal, Refuse)
    assert (refusal.code, refusal.retryable) == ("no_blocks", True)
    prefill(network, first, target)
    network.step_all()
    prefill(network, second, reserve(network, second, attempt=1))
    network.step_all()
    assert answer_of(network, second) == expected(PROMPT[::-1], 6)


class TestEndings:
    """The client goes away, or a worker dies, in each state of a handoff."""

    def test_cancelled_after_the_grant(self, depth: int) -> None:
        network = split_pair(depth=depth)
        request = make_request("r", PROMPT)
        reserve(network, request)
        network.tell("d", Abort(request.request_id))
        assert network.counts("d").quarantined > 0  # the writer has not confirmed yet
        network.pump()
        assert network.idle()

    def test_a_prefill_that_comes_after_its_fence_never_starts(self, depth: int) -> None:
        network = split_pair(depth=depth)
        request = make_request("r", PROMPT)
        target = reserve(network, request)
        network.tell("d", Abort(request.request_id))
        network.pump()
        prefill(network, request, target)
        (refusal,) = network.said("p", Refuse)
        assert isinstance(refusal, Refuse)
        assert refusal.code == "cancelled"
        network.step_all()
        assert network.idle()

    @pytest.mark.parametrize("steps", [0, 1, 2])
    def test_cancelled_while_the_prompt_is_computed(self, steps: int, depth: int) -> None:
        network = split_pair(depth=depth, chunk=16)
        request = make_request("r", PROMPT)
        prefill(network, request, reserve(network, request))
        for _ in range(steps):
            network.nodes["p"].worker.step()
        abort_everywhere(network, request)
        network.step_all()
        assert network.idle()
        assert answer_of(network, request) == []

    def test_cancelled_between_first_token_and_handover(self, depth: int) -> None:
        network = split_pair(depth=depth)
        request = make_request("r", PROMPT)
        prefill(network, request, reserve(network, request))
        while network.nodes["p"].worker.has_work():
            network.nodes["p"].worker.step()
        abort_everywhere(network, request)  # KVReady is in the queue and comes too late
        network.step_all()
        assert network.idle()
        assert len(answer_of(network, request)) == 1

    def test_cancelled_while_decoding(self, depth: int) -> None:
        network = split_pair(depth=depth)
        request = make_request("r", PROMPT, max_tokens=50)
        prefill(network, request, reserve(network, request))
        while not network.nodes["d"].worker.has_work():
            network.pump()
            network.nodes["p"].worker.step()
        for _ in range(3):
            network.nodes["d"].worker.step()
        abort_everywhere(network, request)
        network.step_all()
        assert network.idle()
        assert len(answer_of(network, request)) == 5 - depth

    def test_gateway_gone_gives_everything_back(self, depth: int) -> None:
        network = split_pair(depth=depth)
        requests = [make_request(f"r{i}", PROMPT[i:]) for i in range(3)]
        reserve(network, requests[0])
        prefill(network, requests[1], reserve(network, requests[1]))
        prefill(network, requests[2], reserve(network, requests[2]))
        network.nodes["p"].worker.step()
        network.lose_gateway()
        network.step_all()
        assert network.idle()

    @pytest.mark.parametrize("steps", [0, 1])
    def test_prefill_worker_killed(self, steps: int, depth: int) -> None:
        network = split_pair(depth=depth, chunk=16)
        request = make_request("r", PROMPT)
        prefill(network, request, reserve(network, request))
        for _ in range(steps):
            network.nodes["p"].worker.step()
        network.kill("p")
        (failed,) = network.said("d", Failed)
        assert isinstance(failed, Failed)
        assert failed.code == "writer_lost"
        assert network.idle()

    def test_decode_recomputes_on_its_own_after_the_prefill_worker_died(self, depth: int) -> None:
        network = split_pair(depth=depth)
        request = make_request("r", PROMPT)
        prefill(network, request, reserve(network, request))
        network.kill("p")
        submit(network, "d", request)
        network.step_all()
        assert answer_of(network, request) == expected(PROMPT, 6)
        assert network.idle()

    def test_decode_worker_killed(self, depth: int) -> None:
        network = split_pair(depth=depth, chunk=16)
        request = make_request("r", PROMPT)
        prefill(network, request, reserve(network, request))
        network.nodes["p"].worker.step()
        network.kill("d")
        (failed,) = network.said("p", Failed)
        assert isinstance(failed, Failed)
        assert failed.code == "decode_lost"
        network.step_all()
        assert network.idle()

    def test_a_broken_link_is_no_proof_of_death(self, depth: int) -> None:
        network = split_pair(depth=depth, chunk=16)
        request = make_request("r", PROMPT)
        prefill(network, request, reserve(network, request))
        network.nodes["p"].worker.step()
        network.cut_link("p", "d")
        assert network.counts("d").quarantined > 0
        network.nodes["d"].worker.tick(network.now)
        assert network.counts("d").quarantined > 0
        network.reopen_link("p", "d")  # it opens a new one only after it stopped writing
        network.step_all()
        assert network.idle()

    def test_a_broken_link_ends_with_the_writers_death(self, depth: int) -> None:
        network = split_pair(depth=depth, chunk=16)
        request = make_request("r", PROMPT)
        prefill(network, request, reserve(network, request))
        network.cut_link("p", "d")
        assert network.counts("d").quarantined > 0
        network.kill("p")
        assert network.idle()

    def test_a_frozen_writer_keeps_its_blocks_until_it_thaws(self, depth: int) -> None:
        network = split_pair(depth=depth, chunk=16)
        request = make_request("r", PROMPT)
        prefill(network, request, reserve(network, request))
        network.now += LEASE_S + 0.1
        network.nodes["d"].worker.tick(network.now)
        (failed,) = network.said("d", Failed)
        assert isinstance(failed, Failed)
        assert failed.code == "lease_expired"
        assert network.counts("d").quarantined > 0
        network.pump()  # the writer reads its mail again
        network.step_all()
        assert network.idle()

    def test_a_renewed_lease_lives_on(self, depth: int) -> None:
        network = split_pair(depth=depth)
        request = make_request("r", PROMPT)
        prefill(network, request, reserve(network, request))
        decode, writer = network.nodes["d"].worker, network.nodes["p"].worker
        for _ in range(5):
            network.now += LEASE_S * 0.8
            for conn, handoffs in writer.renewals().items():
                network.post("p", conn, Renew(handoffs))
            network.pump()
            decode.tick(network.now)
        network.step_all()
        assert answer_of(network, request) == expected(PROMPT, 6)


class TestStrangers:
    """Late, doubled and foreign messages have no effect."""

    def test_a_second_kv_ready_is_ignored(self, depth: int) -> None:
        network = split_pair(depth=depth)
        request = make_request("r", PROMPT)
        target = reserve(network, request)
        prefill(network, request, target)
        network.step_all()
        link = next(iter(network.nodes["p"].links))
        network.post("p", link, KVReady(target.handoff, target.epoch, 30))
        network.step_all()
        assert answer_of(network, request) == expected(PROMPT, 6)
        assert network.idle()

    def test_kv_ready_of_another_epoch_is_ignored(self, depth: int) -> None:
        network = split_pair(depth=depth)
        request = make_request("r", PROMPT)
        target = reserve(network, request)
        link = next(iter(network.nodes["p"].links))
        network.post("p", link, KVReady(target.handoff, target.epoch + 1, 30))
        network.pump()
        assert not network.nodes["d"].worker.has_work()
        prefill(network, request, target)
        network.step_all()
        assert answer_of(network, request) == expected(PROMPT, 6)

    def test_kv_ready_from_the_gateway_is_ignored(self, depth: int) -> None:
        network = split_pair(depth=depth)
        request = make_request("r", PROMPT)
        target = reserve(network, request)
        network.tell("d", KVReady(target.handoff, target.epoch, 30))
        assert not network.nodes["d"].worker.has_work()

    def test_a_grant_dies_with_its_link(self, depth: int) -> None:
        network = split_pair(depth=depth)
        request = make_request("r", PROMPT)
        target = reserve(network, request)
        network.kill("p")
        network.add("p", "prefill")
        network.tell("p", Hello("g"))
        network.pair("p", "d")
        prefill(network, request, target)
        (refusal,) = network.said("p", Refuse)
        assert isinstance(refusal, Refuse)
        assert (refusal.code, refusal.retryable) == ("stale_link", True)

    def test_a_restarted_prefill_worker_serves_again(self, depth: int) -> None:
        network = split_pair(depth=depth)
        network.kill("p")
        network.add("p", "prefill")
        network.pair("p", "d")
        for i in range(3):
            request = make_request(f"r{i}", PROMPT)
            prefill(network, request, reserve(network, request))
            network.step_all()
            assert answer_of(network, request) == expected(PROMPT, 6)
        assert network.idle()

    def test_a_request_id_in_use_is_refused_and_the_first_goes_on(self, depth: int) -> None:
        network = split_pair(depth=depth)
        request = make_request("r", PROMPT)
        submit(network, "d", request)
        submit(network, "d", request)
        (failed,) = network.said("d", Failed)
        assert isinstance(failed, Failed)
        assert failed.code == "duplicate"
        network.step_all()
        assert answer_of(network, request) == expected(PROMPT, 6)

    def test_aborting_the_unknown_is_no_error(self, depth: int) -> None:
        network = split_pair(depth=depth)
        abort_everywhere(network, make_request("nobody", PROMPT))
        assert network.idle()

    def test_a_worker_of_another_model_is_not_linked(self) -> None:
        network = Network()
        network.add("p", "prefill")
        network.add("d", "decode")
        network.nodes["p"].worker._links._identity.fingerprint["model"] = "other"
        network.pair("p", "d")
        assert network.nodes["d"].worker.load().linked == ()


def test_welcome_tells_who_and_what(depth: int) -> None:
    network = split_pair(depth=depth)
    (welcome,) = network.said("d", Welcome)
    assert isinstance(welcome, Welcome)
    assert (welcome.worker, welcome.role, welcome.block_size) == ("d", "decode", 4)


def test_an_impossible_request_is_the_callers_fault(depth: int) -> None:
    network = split_pair(depth=depth)
    request = make_request("r", tuple([20] * 10_000))
    network.tell("p", Submit(request))
    (failed,) = network.said("p", Failed)
    assert isinstance(failed, Failed)
    assert (failed.code, failed.param) == ("too_long", "prompt")


def test_replay_continues_after_what_was_emitted(depth: int) -> None:
    network = split_pair(depth=depth)
    request = make_request("r", PROMPT)
    network.tell("d", Submit(request, tuple(expected(PROMPT, 3))))
    network.step_all()
    tokens = [c for c in network.to_gateway["d"] if type(c).__name__ == "StepTokens"]
    assert [c.chunks[0].index for c in tokens] == [3, 4, 5]  # type: ignore[union-attr]
    assert [c.chunks[0].token_ids[0] for c in tokens] == expected(PROMPT, 6)[3:]  # type: ignore[union-attr]


def test_seeded_sampling_is_the_same_split_and_colocated(depth: int) -> None:
    params = SamplingParams(seed=99, max_tokens=12, temperature=1.0)
    answers = []
    for split in (True, False):
        network = split_pair(depth=depth)
        request = make_request("r", PROMPT)
        request = type(request)(request.request_id, request.token_ids, params)
        if split:
            prefill(network, request, reserve(network, request))
        else:
            submit(network, "d", request)
        network.step_all()
        answers.append(answer_of(network, request))
    assert answers[0] == answers[1]
    assert len(answers[0]) == 12


def test_prefill_refuses_what_it_was_not_linked_for(depth: int) -> None:
    network = split_pair(depth=depth)
    request = make_request("r", PROMPT)
    target = reserve(network, request)
    network.cut_link("p", "d")
    network.tell("p", Prefill(request, target, LEASE_S))
    (refusal,) = network.said("p", Refuse)
    assert isinstance(refusal, Refuse)
    assert refusal.code == "stale_link"
