"""Turn N costs only what is new: the rest is read from the decode worker that wrote the answer.

The fake engine's KV holds hashes and is checked before anything is built on it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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

from splitserve.engine.api import Runner
from splitserve.engine.fake import FakeConfig, FakeRunner, fake_tokens
from splitserve.protocol.control import Abort, Failed, Hello
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.handoff import PrefillDone, Refuse
from splitserve.roles.prefill import STALLED_S
from splitserve.roles.pull import TURN_S
from splitserve.transfer.base import LayerReader, PeerId, TransferEvent, TransferId
from splitserve.transfer.connectors.memory import MemoryConnector
from splitserve.transfer.plan import Span

PROMPT = tuple(range(20, 41))
"""21 tokens: five blocks and one more."""

ANSWER = fake_tokens(PROMPT, 12)
NEW = (7, 8, 9)


@dataclass(frozen=True)
class Asked:
    """A read that was asked for, and is still to be done."""

    transfer: TransferId
    peer: PeerId
    real: LayerReader
    layer: int


class LateReads(MemoryConnector):
    """Reads are done when ``bring`` is called, as they are then at the peer."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Asked] = []
        self._names: dict[TransferId, TransferId] = {}
        self.broken = False

    def reader(self, peer: PeerId, spans: Sequence[Span]) -> LayerReader:
        return _LateReader(self, peer, super().reader(peer, spans))

    def ask(self, peer: PeerId, real: LayerReader, layer: int) -> TransferId:
        transfer = self._ends.begin()
        self.asked.append(Asked(transfer, peer, real, layer))
        return transfer

    def bring(self, count: int = 99) -> None:
        """Does the first ``count`` of the reads that were asked for."""
        now, self.asked = self.asked[:count], self.asked[count:]
        for asked in now:
            if self.broken:
                self._ends.failed(asked.transfer, "a test said so")
            else:
                self._names[asked.real.read(asked.layer)] = asked.transfer

    def poll(self) -> list[TransferEvent]:
        return [
            replace(event, transfer=self._names.pop(event.transfer, event.transfer))
            for event in super().poll()
        ]

    def disconnect(self, peer: PeerId) -> None:
        for asked in [asked for asked in self.asked if asked.peer == peer]:
            self.asked.remove(asked)
            self._ends.failed(asked.transfer, "the peer was disconnected")
        super().disconnect(peer)


@dataclass(frozen=True)
class _LateReader:
    connector: LateReads
    peer: PeerId
    real: LayerReader

    def read(self, layer: int) -> TransferId:
        return self.connector.ask(self.peer, self.real, layer)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> list[LateReads]:
    """The connectors of the workers, in the order in which those were added."""
    made: list[LateReads] = []

    def create(name: str) -> LateReads:
        assert name == "memory"
        made.append(LateReads())
        return made[-1]

    monkeypatch.setattr("network.create_connector", create)
    return made


def computed(network: Network, name: str = "p") -> int:
    return network.nodes[name].worker.load().computed_tokens


def pulled(network: Network) -> int:
    return network.nodes["p"].worker.load().pulled_tokens


def talk(network: Network, name: str, prompt: Sequence[int], count: int = 12) -> None:
    """One whole turn, split."""
    request = make_request(name, tuple(prompt), count)
    prefill(network, request, reserve(network, request))
    network.step_all()
    assert answer_of(network, request) == fake_tokens(prompt, count)


def tick(network: Network, name: str = "p") -> None:
    network.nodes[name].worker.tick(network.now)


def begin_second_turn(network: Network) -> None:
    """The first turn is over, the second waits for its reads."""
    talk(network, "first", PROMPT)
    request = second_turn()
    prefill(network, request, reserve(network, request))
    worker = network.nodes["p"].worker
    assert worker.transfers_pending()
    assert not worker.has_work()
    assert network.counts("p").held > 0


def second_turn(max_tokens: int = 6) -> GenerateRequest:
    return make_request("second", (*PROMPT, *ANSWER, *NEW), max_tokens)


def test_the_answer_of_the_last_turn_is_read_and_only_what_is_new_is_computed(depth: int) -> None:
    network = split_pair(depth=depth)
    talk(network, "first", PROMPT)
    assert (computed(network), pulled(network)) == (21, 0)
    talk(network, "second", (*PROMPT, *ANSWER, *NEW))
    # Decode has KV of 21 + 11 tokens: eight blocks. Prefill had five of them.
    assert pulled(network) == 12
    assert computed(network) == 21 + 4
    load = network.nodes["p"].worker.load()
    assert load.pulled_bytes == 12 * FakeConfig(block_size=4).layout.token_bytes
    assert computed(network, "d") == 0
    assert network.idle()


def test_ten_turns_compute_each_token_once_but_for_what_fills_no_block(depth: int) -> None:
    network = split_pair(depth=depth, num_blocks=256)
    history: list[int] = []
    before = 0
    for turn in range(10):
        new = [40 + turn, *range(60, 69)]
        history += new
        talk(network, f"turn{turn}", history, 7)
        now = computed(network)
        # What decode had not computed, or had in no full block: the last token of the answer too.
        assert len(new) <= now - before <= len(new) + 1 + 3
        before = now
        history += fake_tokens(history, 7)
    assert computed(network, "d") == 0
    assert network.idle()


@pytest.mark.parametrize(
    ("history", "read"),
    [
        ((*PROMPT[:9], 99, *PROMPT[10:], *ANSWER), 0),
        ((*PROMPT, *ANSWER[:5], 99, *ANSWER[6:]), 4),
        ((*PROMPT, *ANSWER[8:]), 0),
        (ANSWER, 0),
        (PROMPT[4:], 0),
    ],
    ids=["prompt edited", "answer edited", "thinking stripped", "prompt gone", "start gone"],
)
def test_an_edited_history_is_answered_as_if_it_were_new(
    history: Sequence[int], read: int, depth: int
) -> None:
    network = split_pair(depth=depth)
    talk(network, "first", PROMPT)
    talk(network, "second", (*history, *NEW))
    assert pulled(network) == read
    assert network.idle()


def test_what_prefill_has_too_is_not_read(depth: int) -> None:
    network = split_pair(depth=depth)
    talk(network, "first", PROMPT)
    talk(network, "again", PROMPT)
    talk(network, "longer", (*PROMPT, 99, *NEW))
    assert pulled(network) == 0


def test_a_prefill_worker_that_knows_nothing_reads_all_but_the_last_block(depth: int) -> None:
    network = split_pair(depth=depth)
    submit(network, "d", make_request("first", PROMPT, 12))
    network.step_all()
    talk(network, "second", (*PROMPT, *ANSWER[:11]))
    # All eight blocks are at decode. The last of them has the token that is always computed.
    assert pulled(network) == 28
    assert computed(network) == 4


def test_without_room_the_prompt_is_computed(depth: int) -> None:
    network = split_pair(depth=depth, num_blocks=16)
    submit(network, "d", make_request("first", PROMPT, 12))
    network.step_all()
    waiting = make_request("waiting", tuple(range(100, 150)), 2)
    submit(network, "p", waiting)
    talk(network, "second", (*PROMPT, *ANSWER, *NEW))
    assert pulled(network) == 0
    assert answer_of(network, waiting) == fake_tokens(waiting.token_ids, 2)
    assert network.idle()


def test_a_refused_prompt_reads_nothing(late: list[LateReads]) -> None:
    network = split_pair()
    talk(network, "first", PROMPT)
    request = second_turn()
    target = reserve(network, request)
    network.tell("d", Abort(request.request_id))
    network.pump()
    prefill(network, request, target)
    (refusal,) = network.said("p", Refuse)
    assert isinstance(refusal, Refuse)
    assert refusal.code == "cancelled"
    assert late[0].asked == []
    assert network.idle()


class TestWhileItIsRead:
    def test_others_run_and_the_prompt_joins_when_all_layers_are_here(
        self, late: list[LateReads], depth: int
    ) -> None:
        network = split_pair(depth=depth)
        begin_second_turn(network)
        talk(network, "other", (90, 91, 92, 93, 94))
        late[0].bring(1)
        tick(network)
        assert not network.nodes["p"].worker.has_work()
        late[0].bring()
        tick(network)
        assert network.nodes["p"].worker.has_work()
        network.step_all()
        request = second_turn()
        assert answer_of(network, request) == fake_tokens(request.token_ids, 6)
        assert pulled(network) == 12
        assert network.idle()

    def test_its_lease_is_renewed(self, late: list[LateReads]) -> None:
        network = split_pair()
        begin_second_turn(network)
        assert list(network.nodes["p"].worker.renewals().values()) == [("second#0",)]
        late[0].bring()
        tick(network)

    def test_the_time_counts_as_waiting(self, late: list[LateReads]) -> None:
        network = split_pair()
        begin_second_turn(network)
        network.now += 0.5
        late[0].bring()
        tick(network)
        network.step_all()
        done = network.said("p", PrefillDone)[-1]
        assert isinstance(done, PrefillDone)
        assert done.queue_s == 0.5

    @pytest.mark.parametrize("brought", [0, 1, 2])
    def test_an_abort_waits_for_the_reads_and_uses_none(
        self, brought: int, late: list[LateReads], depth: int
    ) -> None:
        network = split_pair(depth=depth)
        begin_second_turn(network)
        late[0].bring(brought)
        abort_everywhere(network, second_turn())
        network.step_all()
        waits = brought < 2
        # Decode keeps what may still be read, prefill what may still be written.
        assert (network.counts("d").quarantined > 0) == waits
        assert (network.counts("d").held > 0) == waits
        assert (network.counts("p").held > 0) == waits
        late[0].bring()
        tick(network)
        network.step_all()
        assert network.idle()
        assert pulled(network) == 0
        assert answer_of(network, second_turn()) == []
        assert not network.nodes["p"].worker.transfers_pending()

    def test_a_lease_that_ran_out_frees_nothing_before_the_reads_have_ended(
        self, late: list[LateReads]
    ) -> None:
        network = split_pair()
        begin_second_turn(network)
        network.now += LEASE_S + 0.1
        tick(network, "d")
        network.pump()
        assert network.counts("d").held > 0
        submit(network, "d", make_request("large", tuple(range(300, 400)), 2))
        network.step_all()
        late[0].bring()
        tick(network)
        network.pump()
        assert pulled(network) == 0
        assert network.idle()

    def test_a_read_that_fails_costs_the_computing_of_it_all(
        self, late: list[LateReads], depth: int
    ) -> None:
        network = split_pair(depth=depth)
        begin_second_turn(network)
        late[0].bring(1)
        late[0].broken = True
        late[0].bring()
        tick(network)
        network.step_all()
        request = second_turn()
        assert answer_of(network, request) == fake_tokens(request.token_ids, 6)
        assert (pulled(network), computed(network)) == (0, 21 + 16)
        assert network.idle()

    def test_reads_of_which_none_ends_are_left_behind_and_never_used(
        self, late: list[LateReads], depth: int
    ) -> None:
        network = split_pair(depth=depth)
        begin_second_turn(network)
        network.now += STALLED_S
        tick(network)
        network.step_all()
        request = second_turn()
        assert answer_of(network, request) == fake_tokens(request.token_ids, 6)
        assert network.counts("p").held == 5 + 3
        assert network.counts("d").idle
        late[0].bring()
        tick(network)
        assert network.idle()
        assert pulled(network) == 0

    def test_nothing_is_read_from_where_reads_were_left_behind_until_they_have_ended(
        self, late: list[LateReads], depth: int
    ) -> None:
        network = split_pair(depth=depth)
        begin_second_turn(network)
        network.now += STALLED_S
        tick(network)
        network.step_all()
        held, reads = network.counts("p").held, len(late[0].asked)
        third = (*second_turn().token_ids, *fake_tokens(second_turn().token_ids, 6), *NEW)
        talk(network, "third", third, 6)
        assert (network.counts("p").held, len(late[0].asked)) == (held, reads)
        late[0].bring()
        tick(network)
        fourth = make_request("fourth", (*third, *fake_tokens(third, 6), *NEW), 6)
        prefill(network, fourth, reserve(network, fourth))
        late[0].bring()
        tick(network)
        network.step_all()
        assert answer_of(network, fourth) == fake_tokens(fourth.token_ids, 6)
        assert pulled(network) > 0
        assert network.idle()

    def test_slow_reads_that_move_are_waited_for(self, late: list[LateReads]) -> None:
        network = split_pair()
        begin_second_turn(network)
        for _ in range(2):
            network.now += STALLED_S - 0.1
            late[0].bring(1)
            tick(network)
        network.step_all()
        assert pulled(network) == 12

    @pytest.mark.parametrize("end", ["killed", "link"])
    def test_a_lost_decode_worker_ends_it(
        self, end: str, late: list[LateReads], depth: int
    ) -> None:
        network = split_pair(depth=depth)
        begin_second_turn(network)
        if end == "killed":
            network.kill("d")
        else:
            network.cut_link("p", "d")
        failed = network.said("p", Failed)[-1]
        assert isinstance(failed, Failed)
        assert (failed.request_id, failed.code) == ("second", "decode_lost")
        assert late[0].asked == []
        assert network.counts("p").idle
        if end == "link":
            assert network.counts("d").held > 0
            network.reopen_link("p", "d")
        network.step_all()
        assert network.idle()

    def test_a_killed_prefill_worker_frees_what_it_read(self, late: list[LateReads]) -> None:
        network = split_pair()
        begin_second_turn(network)
        assert late[0].asked != []
        network.kill("p")
        assert network.counts("d").idle

    def test_a_worker_that_leaves_hands_it_over(self, late: list[LateReads]) -> None:
        network = split_pair()
        begin_second_turn(network)
        worker = network.nodes["p"].worker
        worker.drain(0.0)
        tick(network)
        assert not worker.drained
        failed = network.said("p", Failed)[-1]
        assert isinstance(failed, Failed)
        assert (failed.request_id, failed.code) == ("second", "draining")
        late[0].bring()
        network.now += 1.0
        tick(network)
        assert worker.drained
        assert network.counts("p").idle


def test_reads_are_started_a_few_at_a_time_where_starting_takes_long(
    late: list[LateReads], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With some connectors a read has ended when it has been started: others must have turns."""
    network = split_pair(runner=lambda config: FakeRunner(replace(config, num_layers=6)))
    talk(network, "first", PROMPT)
    real = LateReads.ask

    def slow(self: LateReads, peer: PeerId, reader: LayerReader, layer: int) -> TransferId:
        network.now += TURN_S
        return real(self, peer, reader, layer)

    monkeypatch.setattr(LateReads, "ask", slow)
    request = second_turn()
    prefill(network, request, reserve(network, request))
    started = []
    for _ in range(5):
        started.append(len(late[0].asked))
        tick(network)
    assert started == [2, 3, 4, 5, 6]
    late[0].bring()
    tick(network)
    network.step_all()
    assert answer_of(network, request) == fake_tokens(request.token_ids, 6)
    assert network.idle()


def pair_of(prefill_layout: Callable[[FakeConfig], FakeConfig]) -> Network:
    network = Network()
    network.add("p", "prefill", runner=lambda config: FakeRunner(prefill_layout(config)))
    network.add("d", "decode")
    for name in ("p", "d"):
        network.tell(name, Hello("g"))
    network.pair("p", "d")
    return network


@pytest.mark.parametrize(("size", "read"), [(2, 32), (8, 32), (3, 30), (5, 30)])
def test_blocks_of_another_size_are_read_as_far_as_they_reach(size: int, read: int) -> None:
    """Decode has eight blocks of four tokens."""
    network = pair_of(lambda config: replace(config, block_size=size))
    submit(network, "d", make_request("first", PROMPT, 12))
    network.step_all()
    talk(network, "second", (*PROMPT, *ANSWER, *NEW))
    assert pulled(network) == read
    assert computed(network) == len(PROMPT) + len(ANSWER) + len(NEW) - read
    assert network.idle()


def sharded(count: int) -> Callable[[FakeConfig], Runner]:
    """``count`` pools that share out six KV heads."""
    return lambda config: FakeRunner(replace(config, num_kv_heads=6, tensor_parallel_size=count))


@pytest.fixture
def two_from_three(late: list[LateReads]) -> tuple[Network, list[LateReads]]:
    """Prefill has two pools, decode three, with a first turn in them. Prefill's connectors too."""
    network = Network()
    for name, role, shards in (("p", "prefill", 2), ("d", "decode", 3)):
        network.add(name, role, runner=sharded(shards))
        network.tell(name, Hello("g"))
    network.pair("p", "d")
    submit(network, "d", make_request("first", PROMPT, 12))
    network.step_all()
    return network, late[:2]


def test_between_unlike_shards_every_pool_is_read_into_layer_by_layer(
    two_from_three: tuple[Network, list[LateReads]],
) -> None:
    network, connectors = two_from_three
    request = second_turn()
    prefill(network, request, reserve(network, request))
    layers = [0, 0, 1, 1]  # heads 0-2 lie in two of three pools, heads 3-5 as well
    assert [[read.layer for read in one.asked] for one in connectors] == [layers, layers]
    connectors[0].bring()
    tick(network)
    assert pulled(network) == 0
    connectors[1].bring()
    tick(network)
    assert pulled(network) == 32
    network.step_all()
    assert answer_of(network, request) == fake_tokens(request.token_ids, 6)
    assert network.idle()


def test_a_read_that_failed_in_one_pool_fails_all_of_it(
    two_from_three: tuple[Network, list[LateReads]],
) -> None:
    network, connectors = two_from_three
    request = second_turn()
    prefill(network, request, reserve(network, request))
    connectors[0].bring()
    connectors[1].broken = True
    connectors[1].bring(1)
    tick(network)
    assert not network.nodes["p"].worker.has_work()  # what is under way may still land
    connectors[1].broken = False
    connectors[1].bring()
    tick(network)
    network.step_all()
    assert (pulled(network), computed(network)) == (0, len(request.token_ids))
    assert answer_of(network, request) == fake_tokens(request.token_ids, 6)
    assert network.idle()
