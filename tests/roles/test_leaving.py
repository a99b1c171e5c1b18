"""A worker that drains, changes its role, or is asked what it holds."""

import pytest
from network import (
    GATEWAY,
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
from splitserve.protocol.codec import Message
from splitserve.protocol.control import (
    Abort,
    Drain,
    Failed,
    Hello,
    Holding,
    Inventory,
    RoleSet,
    SetRole,
    Submit,
    Welcome,
)
from splitserve.protocol.handoff import Prefill, Refuse, Reserve
from splitserve.roles.departure import LINGER_S
from splitserve.roles.port import ConnId
from splitserve.roles.role_book import ROLE_EVERY_S

PROMPT = tuple(range(20, 57))


def pass_time(network: Network, seconds: float) -> None:
    network.now += seconds
    for node in network.nodes.values():
        node.worker.tick(network.now)
    network.pump()


def codes(network: Network, name: str) -> list[str]:
    return [m.code for m in network.said(name, Failed) if isinstance(m, Failed)]


def holding(network: Network, name: str, serial: int = 1) -> set[str]:
    network.tell(name, Inventory(serial))
    answer = network.to_gateway[name][-1]
    assert isinstance(answer, Holding)
    assert answer.serial == serial
    assert len(set(answer.requests)) == len(answer.requests)
    return set(answer.requests)


def test_a_draining_worker_takes_nothing_new_and_finishes_what_runs() -> None:
    network = split_pair()
    request, late = make_request("r", PROMPT), make_request("late", PROMPT)
    submit(network, "d", request)
    network.tell("d", Drain())
    assert network.nodes["d"].worker.load().draining
    assert not network.nodes["d"].worker.drained
    submit(network, "d", late)
    assert codes(network, "d") == ["draining"]
    network.step_all()
    assert answer_of(network, request) == fake_tokens(PROMPT, 6)
    pass_time(network, LINGER_S)
    assert network.nodes["d"].worker.drained


def test_a_drained_worker_stays_until_its_leaving_is_known() -> None:
    network = split_pair()
    network.tell("d", Drain(0.0))
    pass_time(network, LINGER_S / 2)
    assert not network.nodes["d"].worker.drained
    submit(network, "d", make_request("r", PROMPT))
    assert codes(network, "d") == ["draining"]
    pass_time(network, LINGER_S)
    assert network.nodes["d"].worker.drained


def test_what_runs_when_the_grace_is_over_is_handed_over() -> None:
    network = split_pair()
    request = make_request("r", PROMPT, max_tokens=50)
    submit(network, "d", request)
    network.nodes["d"].worker.step()
    network.nodes["d"].worker.step()
    network.tell("d", Drain(5.0))
    pass_time(network, 4.9)
    assert codes(network, "d") == []
    pass_time(network, 0.1)
    assert codes(network, "d") == ["draining"]
    assert network.nodes["d"].worker.drained
    assert network.idle()
    emitted = answer_of(network, request)
    network.tell("p", Submit(request, tuple(emitted)))
    network.step_all()
    assert answer_of(network, request) == fake_tokens(PROMPT, 50)


def test_a_second_drain_can_only_shorten_the_grace() -> None:
    network = split_pair()
    submit(network, "d", make_request("r", PROMPT, max_tokens=50))
    network.tell("d", Drain(1.0))
    network.tell("d", Drain(60.0))
    pass_time(network, 1.0)
    assert codes(network, "d") == ["draining"]


@pytest.mark.parametrize("leaving", ["p", "d"])
def test_a_handoff_under_way_is_handed_over_by_either_side(leaving: str) -> None:
    network = split_pair(chunk=8)
    request = make_request("r", PROMPT)
    prefill(network, request, reserve(network, request))
    network.nodes["p"].worker.step()
    network.tell(leaving, Drain(0.0))
    pass_time(network, LINGER_S)
    assert codes(network, leaving) == ["draining"]
    abort_everywhere(network, request)
    network.step_all()
    pass_time(network, LINGER_S)
    assert network.nodes[leaving].worker.drained
    assert network.idle()


def test_a_draining_worker_grants_and_prefills_nothing() -> None:
    network = split_pair()
    request = make_request("r", PROMPT)
    target = reserve(network, request)
    network.tell("p", Drain())
    network.tell("p", Prefill(request, target, 5.0))
    network.tell("d", Drain())
    network.tell("d", Reserve(HandoffId("q#0"), make_request("q", PROMPT), WorkerId("p"), 5.0))
    for name in ("p", "d"):
        (refusal,) = network.said(name, Refuse)
        assert isinstance(refusal, Refuse)
        assert (refusal.code, refusal.retryable) == ("draining", True)


# Roles


def set_role(network: Network, name: str, role: str, grace_s: float = 30.0) -> RoleSet:
    network.tell(name, SetRole(role, grace_s))
    answer = network.said(name, RoleSet)[-1]
    assert isinstance(answer, RoleSet)
    return answer


def test_a_role_is_changed_while_running_and_shown_to_all() -> None:
    network = split_pair()
    assert network.nodes["d"].worker.load().role == "decode"
    assert set_role(network, "d", "prefill") == RoleSet("prefill")
    assert network.nodes["d"].worker.load().role == "prefill"
    network.tell("d", Hello("another"))
    welcome = network.said("d", Welcome)[-1]
    assert isinstance(welcome, Welcome)
    assert welcome.role == "prefill"


def test_a_role_does_not_follow_every_breath() -> None:
    network = split_pair()
    set_role(network, "d", "prefill")
    pass_time(network, ROLE_EVERY_S - 1)
    refused = set_role(network, "d", "decode")
    assert refused.role == "prefill"
    assert "stays for at least 10 s" in refused.refused
    assert set_role(network, "d", "prefill") == RoleSet("prefill")
    pass_time(network, 1)
    assert set_role(network, "d", "decode") == RoleSet("decode")


def test_an_unknown_role_changes_nothing() -> None:
    network = split_pair()
    refused = set_role(network, "d", "banana")
    assert refused.role == "decode"
    assert "no role 'banana'" in refused.refused


def test_old_work_is_handed_over_after_its_grace_and_new_work_stays() -> None:
    network = split_pair()
    old, new = make_request("old", PROMPT, 50), make_request("new", PROMPT[::-1], 50)
    submit(network, "d", old)
    set_role(network, "d", "prefill", 2.0)
    submit(network, "d", new)  # nobody else was there for it
    network.nodes["d"].worker.step()
    pass_time(network, 1.9)
    assert codes(network, "d") == []
    pass_time(network, 0.1)
    assert codes(network, "d") == ["role_changed"]
    network.step_all()
    assert answer_of(network, new) == fake_tokens(new.token_ids, 50)


def test_work_that_the_new_role_does_too_goes_on() -> None:
    network = Network()
    network.add("c", "colocated")
    network.tell("c", Hello("g"))
    request = make_request("r", PROMPT, 20)
    submit(network, "c", request)
    set_role(network, "c", "decode", 0.0)
    pass_time(network, 1.0)
    network.step_all()
    assert codes(network, "c") == []
    assert answer_of(network, request) == fake_tokens(PROMPT, 20)


def test_a_worker_in_another_role_still_does_everything() -> None:
    network = split_pair()
    set_role(network, "d", "prefill")
    request = make_request("r", PROMPT)
    prefill(network, request, reserve(network, request))
    network.step_all()
    assert answer_of(network, request) == fake_tokens(PROMPT, 6)


# Inventory


def test_a_worker_tells_what_it_holds_in_every_part() -> None:
    network = split_pair(chunk=8)
    whole, split = make_request("w", PROMPT[::-1]), make_request("s", PROMPT)
    assert holding(network, "d") == set()
    target = reserve(network, split)
    assert holding(network, "d") == {"s"}
    prefill(network, split, target)
    assert holding(network, "p") == {"s"}
    submit(network, "p", whole)
    assert holding(network, "p", 2) == {"s", "w"}
    network.step_all()
    assert holding(network, "p") == holding(network, "d") == set()


def test_each_gateway_hears_of_its_own_requests_only() -> None:
    network = split_pair()
    submit(network, "d", make_request("r", PROMPT))
    other: list[Message] = []
    worker = network.nodes["d"].worker
    network.post = lambda name, conn, message: other.append(message)  # type: ignore[method-assign]
    worker.handle(ConnId(99), Inventory(7))
    assert other == [Holding(7, ())]
    worker.handle(GATEWAY, Inventory(8))
    assert other[1] == Holding(8, (make_request("r", PROMPT).request_id,))


def test_what_was_aborted_is_not_held_even_while_its_last_writes_run() -> None:
    network = split_pair(chunk=8)
    request = make_request("r", PROMPT)
    prefill(network, request, reserve(network, request))
    network.nodes["p"].worker.step()
    network.tell("p", Abort(request.request_id))
    assert holding(network, "p") == set()
