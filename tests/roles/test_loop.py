"""The engine's thread between its steps."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

import pytest
from network import Network, answer_of, make_request, prefill, reserve, submit

from splitserve.engine.api import Sampled
from splitserve.engine.fake import FakeConfig, FakeRunner, fake_tokens
from splitserve.protocol.codec import FrameDecoder, Message
from splitserve.protocol.handoff import KVReady
from splitserve.roles.loop import EngineThread, Outbox, Outgoing, Snapshot, StopAsked, Write
from splitserve.roles.port import ConnId
from splitserve.transfer.base import TransferEvent
from splitserve.transfer.connectors.memory import MemoryConnector

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
