"""Orders to one client, and what it tells: the router's part is played by the test."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import pytest
from fake_vllm import Behavior, FakeVllm
from router_bench import until
from scripted_worker import prompt
from vllm_bench import TestDialect

from splitserve.clock import monotonic
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.codec import Message
from splitserve.protocol.control import (
    Abort,
    Drain,
    Failed,
    Holding,
    Inventory,
    RoleSet,
    SetRole,
    Submit,
    Welcome,
)
from splitserve.protocol.handoff import GrantTarget, Prefill, Refuse, Reserve
from splitserve.protocol.telemetry import Load
from splitserve.router.workers.client import WorkerClient
from splitserve.router.workers.vllm.calls import Calls, new_session
from splitserve.router.workers.vllm.client import VllmClient
from splitserve.router.workers.vllm.exchange import Exchange
from splitserve.router.workers.vllm.handshake import trusted
from splitserve.router.workers.vllm.load_metrics import Reading
from splitserve.router.workers.vllm.settings import VllmWorker
from splitserve.router.workers.vllm.watch import Watch

M = TypeVar("M")


class Ears:
    """WorkerEvents that remember."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def connecting(self, client: WorkerClient) -> None:
        self.heard.append("connecting")

    def welcomed(self, client: WorkerClient, welcome: Welcome) -> None:
        self.heard.append(welcome)

    def received(self, client: WorkerClient, message: Message) -> None:
        self.heard.append(message)

    def lost(self, client: WorkerClient, reason: str) -> None:
        self.heard.append("lost")

    def all(self, kind: type[M]) -> list[M]:
        return [each for each in self.heard if isinstance(each, kind)]

    async def hear(self, kind: type[M]) -> M:
        """The last one of that kind, once there is one."""
        await until(lambda: bool(self.all(kind)))
        return self.all(kind)[-1]


@pytest.fixture
async def fake() -> AsyncIterator[FakeVllm]:
    fake = await FakeVllm(behave=lambda call: Behavior(hold=asyncio.Event())).start()
    yield fake
    await fake.stop()


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
async def client(fake: FakeVllm, ears: Ears) -> AsyncIterator[VllmClient]:
    worker = VllmWorker(WorkerId("d"), "decode", fake.url)
    client = VllmClient(
        f"vllm+{fake.url}",
        ears,
        worker,
        TestDialect(needs={"prefill": ("engine_id",)}),
        Exchange(lambda word: None),
        backoff_s=0.01,
        max_backoff_s=0.01,
        try_out=trusted,
    )
    assert not client.send(Inventory(1))
    client.start()
    await ears.hear(Load)
    yield client
    await client.close()


async def test_it_says_who_is_there_before_anything_else(client: VllmClient, ears: Ears) -> None:
    connecting, welcome, load = ears.heard[:3]
    assert connecting == "connecting"
    assert isinstance(welcome, Welcome)
    assert (welcome.worker, welcome.role, welcome.model) == ("d", "decode", "m")
    assert (welcome.max_model_len, welcome.block_size, welcome.connector) == (4096, 16, "test")
    assert welcome.fingerprint == {
        "vllm_model": "/models/m",
        "vllm_version": "0.32.0",
        "vllm_connector": "test",
        "vllm_block_size": "16",
    }
    assert isinstance(load, Load)
    assert (load.kv.free, load.kv.total, load.role) == (1000, 1000, "decode")


async def test_nothing_is_told_while_an_order_is_given(client: VllmClient, ears: Ears) -> None:
    before = len(ears.heard)
    assert client.send(Reserve(HandoffId("h"), prompt("r"), WorkerId("stranger"), 5.0))
    assert len(ears.heard) == before
    refusal = await ears.hear(Refuse)
    assert (refusal.code, refusal.retryable) == ("not_linked", False)


async def test_an_inventory_names_what_runs(client: VllmClient, fake: FakeVllm, ears: Ears) -> None:
    client.send(Submit(prompt("r")))
    client.send(Inventory(3))
    assert await ears.hear(Holding) == Holding(3, (RequestId("r"),))
    await fake.call()
    client.send(Abort(RequestId("r")))
    client.send(Inventory(4))
    await fake.see(lambda: fake.calls[0].gone)
    assert await ears.hear(Holding) == Holding(4, ())
    assert ears.all(Failed) == []


async def test_prefill_for_a_decode_side_that_has_gone_fails(
    client: VllmClient, ears: Ears
) -> None:
    target = GrantTarget(HandoffId("h"), 0, WorkerId("x"), "d>x", 0, ())
    client.send(Prefill(prompt("r"), target, 5.0))
    assert (await ears.hear(Failed)).code == "decode_lost"


async def test_a_role_is_taken_on_where_the_facts_allow_it(client: VllmClient, ears: Ears) -> None:
    client.send(SetRole("colocated"))
    assert await ears.hear(RoleSet) == RoleSet("colocated")
    await until(lambda: ears.all(Load)[-1].role == "colocated")
    client.send(SetRole("prefill"))
    await until(lambda: len(ears.all(RoleSet)) == 2)
    assert ears.all(RoleSet)[1] == RoleSet("colocated", "test needs engine_id of it for that")
    client.send(SetRole("cook"))
    await until(lambda: len(ears.all(RoleSet)) == 3)
    assert ears.all(RoleSet)[2] == RoleSet("colocated", "'cook' is no role")


async def test_a_drained_instance_takes_nothing_new_and_hands_back_the_rest(
    client: VllmClient, fake: FakeVllm, ears: Ears
) -> None:
    client.send(Submit(prompt("old")))
    await fake.call()
    client.send(Drain(0.02))
    client.send(Submit(prompt("new")))
    await until(lambda: len(ears.all(Failed)) == 2)
    assert [(f.request_id, f.code) for f in ears.all(Failed)] == [
        ("new", "draining"),
        ("old", "draining"),
    ]
    assert ears.all(Load)[-1].draining
    assert len(fake.calls) == 1


async def test_a_drop_is_told_at_once_and_nothing_after_it(
    client: VllmClient, fake: FakeVllm, ears: Ears
) -> None:
    client.send(Submit(prompt("r")))
    await fake.call()
    client.send(Inventory(1))
    client.drop("silent")
    assert ears.heard[-1] == "lost"
    await fake.see(lambda: fake.calls[0].gone)
    await until(lambda: ears.heard.count("connecting") == 2)
    assert ears.all(Holding) == []


async def test_a_slow_page_is_no_silence() -> None:
    """The router would take it for death."""
    hold = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hold.wait()
        writer.close()

    server = await asyncio.start_server(slow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    session = new_session("")
    reports: list[int] = []
    watch = Watch(
        Calls(session, f"http://127.0.0.1:{port}"), Reading(), lambda: reports.append(1), monotonic
    )
    watching = asyncio.create_task(watch.until_lost())
    await until(lambda: len(reports) == 2)
    watch.stop("enough")
    hold.set()
    assert await watching == "enough"
    await session.close()
    server.close()
    await server.wait_closed()
