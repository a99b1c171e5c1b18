"""A split answer is the colocated one, whatever moves the KV and however the two workers' pools
differ.

The fake engine's KV holds hashes, so that a byte that is lost or in a wrong place shows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from network import Network, answer_of, make_request, prefill, reserve

from splitserve.engine.api import Runner
from splitserve.engine.fake import FakeConfig, FakeRunner, fake_tokens
from splitserve.protocol.control import Hello
from splitserve.transfer.base import Connector
from splitserve.transfer.registry import create_connector


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes the connectors that a network opens."""
    connectors: list[Connector] = []

    def create(name: str) -> Connector:
        connectors.append(create_connector(name))
        return connectors[-1]

    monkeypatch.setattr("network.create_connector", create)
    yield
    for connector in connectors:
        connector.close()


@dataclass(frozen=True)
class Side:
    """A worker's pools: ``shards`` of them share out six KV heads."""

    block_size: int
    shards: int = 1

    def __str__(self) -> str:
        return f"{self.shards}x{self.block_size}"

    def runner(self) -> Callable[[FakeConfig], Runner]:
        return lambda config: FakeRunner(
            replace(
                config,
                block_size=self.block_size,
                num_kv_heads=6,
                tensor_parallel_size=self.shards,
            )
        )


SIDES = [
    (Side(4), Side(4)),
    (Side(4), Side(8)),
    (Side(8), Side(4)),
    (Side(4), Side(3)),
    (Side(5), Side(7)),
    (Side(4), Side(4, 2)),
    (Side(4, 2), Side(4)),
    (Side(4, 2), Side(4, 2)),
    (Side(4, 2), Side(4, 3)),
    (Side(8, 6), Side(4)),
    (Side(5, 3), Side(7, 2)),
]


def pair(connector: str, prefill_side: Side, decode_side: Side) -> Network:
    network = Network()
    for name, role, side in (("p", "prefill", prefill_side), ("d", "decode", decode_side)):
        network.add(name, role, connector, runner=side.runner())
        network.tell(name, Hello("g"))
    network.pair("p", "d")
    return network


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize("connector", ["memory", "tcp"])
@pytest.mark.parametrize(("prefill_side", "decode_side"), SIDES, ids=str)
def test_over_unlike_pools_and_with_a_prefix_that_decode_has(
    connector: str, prefill_side: Side, decode_side: Side
) -> None:
    network = pair(connector, prefill_side, decode_side)
    for name, length in (("first", 37), ("longer", 75), ("shorter", 22)):
        request = make_request(name, tuple(range(20, 20 + length)))
        target = reserve(network, request)
        assert (target.skip_blocks > 0) == (name != "first")
        prefill(network, request, target)
        network.step_all()
        while network.nodes["p"].worker.transfers_pending():
            network.nodes["p"].worker.step()
        network.step_all()
        assert answer_of(network, request) == fake_tokens(request.token_ids, 6)
    assert network.idle()


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize("connector", ["memory", "tcp"])
@pytest.mark.parametrize(("prefill_side", "decode_side"), SIDES, ids=str)
def test_what_decode_has_of_a_conversation_is_read(
    connector: str, prefill_side: Side, decode_side: Side
) -> None:
    network = pair(connector, prefill_side, decode_side)
    worker = network.nodes["p"].worker
    history = tuple(range(20, 57))
    for turn in range(4):
        request = make_request(f"turn{turn}", history)
        prefill(network, request, reserve(network, request))
        network.step_all()
        while worker.transfers_pending():
            worker.step()
            network.step_all()
        answer = fake_tokens(history, 6)
        assert answer_of(network, request) == answer
        assert (worker.load().pulled_tokens > 0) == (turn > 0)
        history = (*history, *answer, 7, 8)
    assert network.idle()
