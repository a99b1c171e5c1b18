"""What costs more to read than to compute is computed, and answered the same."""

import pytest
from network import Network, answer_of, make_request, prefill, reserve
from test_pulling import LateReads, computed, late, pulled, talk, tick

from splitserve.engine.api import KVSink, Row
from splitserve.engine.fake import FakeConfig, FakeRunner, fake_tokens
from splitserve.protocol.control import Hello
from splitserve.roles.pull_cost import BELIEVED_S, LEAST_PULLS

__all__ = ["late"]

TOKEN_S = 0.001
DEAR_S = 5.0
CHEAP_S = 0.001
TURN = 21
NEW = (7, 8, 9)


class Timed(FakeRunner):
    """A token takes a millisecond of the network's time."""

    def __init__(self, config: FakeConfig, network: Network) -> None:
        super().__init__(config)
        self._network = network

    def launch(self, rows: list[Row], sink: KVSink | None) -> None:
        super().launch(rows, sink)
        self._network.now += TOKEN_S * sum(len(row.tokens) for row in rows)


@pytest.fixture
def network(late: list[LateReads], depth: int) -> Network:
    network = Network()
    for name, role in (("p", "prefill"), ("d", "decode")):
        network.add(
            name, role, num_blocks=256, depth=depth, runner=lambda config: Timed(config, network)
        )
        network.tell(name, Hello("g"))
    network.pair("p", "d")
    return network


def two_turns(network: Network, late: list[LateReads], number: int, read_s: float) -> None:
    """A conversation of its own; what its second turn reads takes so long."""
    prompt = tuple(range(100 * number, 100 * number + TURN))
    talk(network, f"first{number}", prompt)
    history = (*prompt, *fake_tokens(prompt, 12), *NEW)
    request = make_request(f"second{number}", history)
    prefill(network, request, reserve(network, request))
    network.now += read_s
    late[0].bring()
    tick(network)
    network.step_all()
    assert answer_of(network, request) == fake_tokens(history, 6)


def skipped(network: Network) -> int:
    return network.nodes["p"].worker.load().skipped_pulls


def test_reads_that_turn_out_dear_are_not_made_any_more(
    network: Network, late: list[LateReads]
) -> None:
    for number in range(LEAST_PULLS):
        two_turns(network, late, number, DEAR_S)
    assert (pulled(network), skipped(network)) == (12 * LEAST_PULLS, 0)
    before = computed(network)
    two_turns(network, late, LEAST_PULLS, 0.0)
    assert (pulled(network), skipped(network)) == (12 * LEAST_PULLS, 1)
    assert computed(network) - before == TURN + 12 + 4
    assert network.idle()


def test_one_read_is_made_again_when_the_last_is_long_ago(
    network: Network, late: list[LateReads]
) -> None:
    for number in range(LEAST_PULLS):
        two_turns(network, late, number, DEAR_S)
    network.now += BELIEVED_S + 1
    two_turns(network, late, LEAST_PULLS, DEAR_S)
    assert (pulled(network), skipped(network)) == (12 * (LEAST_PULLS + 1), 0)
    two_turns(network, late, LEAST_PULLS + 1, DEAR_S)
    assert skipped(network) == 1
    assert network.idle()


def test_cheap_reads_go_on(network: Network, late: list[LateReads]) -> None:
    for number in range(2 * LEAST_PULLS):
        two_turns(network, late, number, CHEAP_S)
    assert (pulled(network), skipped(network)) == (24 * LEAST_PULLS, 0)
    assert network.idle()
