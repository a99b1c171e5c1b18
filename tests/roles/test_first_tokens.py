"""What workers tell a gateway of the time that its requests' first tokens took."""

import pytest
from network import (
    GATEWAY,
    Network,
    answer_of,
    make_request,
    prefill,
    reserve,
    split_pair,
)

from splitserve.protocol.control import Began, StepTokens, Submit


def told(network: Network, name: str) -> list[Began]:
    frames = network.said(name, StepTokens)
    return [began for frame in frames if isinstance(frame, StepTokens) for began in frame.began]


def test_a_whole_request_is_told_of_once_with_its_wait_in_the_inbox() -> None:
    network = Network()
    network.add("c", "colocated")
    worker = network.nodes["c"].worker
    worker.handle(GATEWAY, Submit(make_request("r", (5, 6, 7), 4)), 2.5)
    network.step_all()
    [began] = told(network, "c")
    assert began.request_id == "r"
    assert began.queue_s == pytest.approx(2.5, abs=0.2)
    assert began.first_s is not None
    assert began.first_s > 0
    first, *others = network.said("c", StepTokens)
    assert isinstance(first, StepTokens)
    assert first.chunks[0].index == 0
    assert len(others) == 3


def test_both_parts_of_a_split_request_tell_their_own() -> None:
    network, request = split_pair(), make_request("r", tuple(range(20, 57)))
    prefill(network, request, reserve(network, request))
    network.step_all()
    assert [began.request_id for began in told(network, "p")] == ["r"]
    [decode] = told(network, "d")
    assert decode.queue_s is not None
    assert decode.first_s is not None
    assert min(decode.queue_s, decode.first_s) >= 0
    assert len(answer_of(network, request)) == 6
