"""The engine's thread between its steps."""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

import pytest
from network import (
    GATEWAY,
    Life,
    Network,
    answer_of,
    make_request,
    prefill,
    reserve,
    submit,
)

from splitserve.engine.api import KVSink, Row, Sampled
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.engine.fake import FakeConfig, FakeRunner, fake_tokens
from splitserve.ids import Incarnation, WorkerId
from splitserve.protocol.codec import FrameDecoder, Message
from splitserve.protocol.control import Hello, Submit, Welcome
from splitserve.protocol.handoff import KVReady
from splitserve.roles.loop import (
    ConnectionLost,
    EngineThread,
    Outbox,
    Outgoing,
    Received,
    Snapshot,
    StopAsked,
    Write,
)
from splitserve.roles.pace import LEAST_LENGTHS, MARGIN_S
from splitserve.roles.port import ConnId
from splitserve.roles.worker import Worker, WorkerFacts
from splitserve.transfer.base import TransferEvent
from splitserve.transfer.connectors.memory import MemoryConnector
from splitserve.transfer.sharded import ShardedConnector

WAIT_S = 10.0


class Device(FakeRunner):
    """Nothing is ready while ``done`` is not set: who collects then waits for it."""

    def __init__(self, config: FakeConfig) -> None:
        super().__init__(config)
        self.done = threading.Event()
        self.done.set()

    def ready(self) -> bool:
        return self.done.is_set()

    def collect(self) -> list[Sampled]:
        assert self.done.wait(WAIT_S)
        return super().collect()


@dataclass
class Threaded(Network):
    """What ``p`` says goes through an outbox and leaves when its thread hands it over."""

    outbox: Outbox = field(default_factory=Outbox)
    left: SimpleQueue[Message] = field(default_factory=SimpleQueue)

    def post(self, name: str, conn: ConnId, message: Message) -> None:
        if name == "p":
            self.outbox.send(conn, message)
        else:
            super().post(name, conn, message)

    def deliver(self, items: list[Outgoing], snapshot: Snapshot | None = None) -> None:
        for item in items:
            assert isinstance(item, Write)
            (message,) = FrameDecoder().feed(item.frame)
            super().post("p", item.conn, message)
            self.left.put(message)


@pytest.fixture
def let_go(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No write ends before it is set."""
    event, real = threading.Event(), MemoryConnector.poll

    def poll(self: MemoryConnector) -> list[TransferEvent]:
        return real(self) if event.is_set() else []

    monkeypatch.setattr(MemoryConnector, "poll", poll)
    yield event
    event.set()


def test_the_end_of_a_push_is_told_while_the_device_works_on_another_prompt(
    let_go: threading.Event,
) -> None:
    network, devices = Threaded(), []

    def device(config: FakeConfig) -> Device:
        devices.append(Device(config))
        return devices[-1]

    worker = network.add("p", "prefill", depth=2, runner=device).worker
    network.add("d", "decode")
    network.pair("p", "d")
    network.deliver(network.outbox.take())
    network.pump()
    pushed, other = make_request("pushed", (*range(20, 57),)), make_request("other", (7, 8, 9), 20)
    prefill(network, pushed, reserve(network, pushed))
    submit(network, "p", other)
    while not worker.transfers_pending():
        worker.step()
    devices[0].done.clear()

    ended: SimpleQueue[BaseException | None] = SimpleQueue()
    thread = EngineThread(worker, network.outbox, network.deliver, ended.put, lambda: 0.0)
    thread.start()
    let_go.set()
    while not isinstance(network.left.get(timeout=WAIT_S), KVReady):
        pass
    assert len(answer_of(network, other)) < 20
    devices[0].done.set()
    while len(answer_of(network, other)) < 20:
        network.left.get(timeout=WAIT_S)
    thread.post(StopAsked())
    assert ended.get(timeout=WAIT_S) is None
    assert answer_of(network, other) == fake_tokens(other.token_ids, 20)
    network.step_all()
    assert answer_of(network, pushed) == fake_tokens(pushed.token_ids, 6)


LENGTH_S = 0.005
LAUNCH_S = 0.001


class Clockwork(FakeRunner):
    """A device with a clock that moves only while it is given a step or waited for, and when a test
    moves it. ``launched`` has the names of each launch's requests."""

    def __init__(self, config: FakeConfig) -> None:
        super().__init__(config)
        self.now = 0.0
        self.ends: deque[float] = deque()
        self.launched: SimpleQueue[list[str]] = SimpleQueue()

    def clock(self) -> float:
        return self.now

    def launch(self, rows: Sequence[Row], sink: KVSink | None) -> None:
        super().launch(rows, sink)
        self.now += LAUNCH_S
        self.ends.append(max([self.now, *self.ends]) + LENGTH_S)
        self.launched.put([row.request_id for row in rows])

    def ready(self) -> bool:
        return not self.ends or self.now >= self.ends[0]

    def collect(self) -> list[Sampled]:
        self.now = max(self.now, self.ends.popleft())
        return super().collect()


class Held:
    """A worker's thread that waits before it launches the next step of request ``a``, which runs:
    of its prompt, one after it, and those of which the lengths were taken."""

    def __init__(self) -> None:
        config = FakeConfig(
            num_blocks=64,
            block_size=4,
            depth=2,
            scheduler=SchedulerConfig(max_num_seqs=16, max_num_batched_tokens=32),
        )
        self.device = Clockwork(config)
        engine = EngineCore(self.device, config.scheduler, self.device.clock)
        connector = ShardedConnector(MemoryConnector)
        connector.open(engine.regions(), engine.describe().layout)
        facts = WorkerFacts(
            WorkerId("w"), Incarnation("w-1"), "colocated", "w", 1, "memory", {"model": "fake"}
        )
        outbox = Outbox()
        worker = Worker(engine, connector, outbox, facts, self.device.clock, lambda _: Life())
        self.left: SimpleQueue[Message] = SimpleQueue()
        self.ended: list[BaseException | None] = []
        self._thread = EngineThread(
            worker, outbox, self._deliver, self.ended.append, self.device.clock
        )
        self.submit("a")
        self._thread.start()
        for _ in range(LEAST_LENGTHS + 2):
            assert self.next_launch() == ["a"]

    def submit(self, name: str) -> None:
        request = make_request(name, (7, 8, 9), 100)
        self._thread.post(Received(GATEWAY, Submit(request), self.device.clock()))

    def hear_out(self) -> None:
        """Returns when the thread has taken in all that was posted, and told it."""
        self._thread.post(Received(GATEWAY, Hello("g"), self.device.clock()))
        while not isinstance(self.left.get(timeout=WAIT_S), Welcome):
            pass

    def lose_gateway(self) -> None:
        self._thread.post(ConnectionLost(GATEWAY))

    def next_launch(self) -> list[str]:
        return self.device.launched.get(timeout=WAIT_S)

    def let_pass(self) -> None:
        """The time until the launch is due, and a little more."""
        self.device.now += LENGTH_S - LAUNCH_S - MARGIN_S + 1e-6

    def stop(self) -> None:
        """Also of a thread that has ended."""
        self._thread.post(StopAsked())
        assert self._thread.join(WAIT_S)
        assert self.ended == [None]

    def _deliver(self, items: list[Outgoing], snapshot: Snapshot) -> None:
        for item in items:
            assert isinstance(item, Write)
            for message in FrameDecoder().feed(item.frame):
                self.left.put(message)


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.stop()


def test_what_arrives_while_a_step_runs_joins_the_next_launch(held: Held) -> None:
    held.submit("b")
    held.hear_out()
    assert held.device.launched.empty()
    held.let_pass()
    assert held.next_launch() == ["a", "b"]


def test_the_step_after_a_prompt_is_launched_at_once(held: Held) -> None:
    held.submit("b")
    held.hear_out()
    held.let_pass()
    assert [held.next_launch() for _ in range(2)] == [["a", "b"]] * 2
    held.hear_out()
    assert held.device.launched.empty()


def test_a_step_that_ends_early_is_followed_at_once(held: Held) -> None:
    held.hear_out()
    assert held.device.launched.empty()
    held.device.ends[0] = held.device.now
    assert held.next_launch() == ["a"]


def test_a_connection_that_is_lost_takes_its_requests_out_of_the_next_launch(held: Held) -> None:
    held.lose_gateway()
    held.hear_out()
    held.submit("b")
    held.hear_out()
    assert held.device.launched.empty()
    held.let_pass()
    assert held.next_launch() == ["b"]


def test_a_thread_that_waits_for_its_next_launch_can_be_stopped(held: Held) -> None:
    held.stop()
    assert held.device.launched.empty()
