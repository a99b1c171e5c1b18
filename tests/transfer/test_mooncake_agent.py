"""What connector mooncake asks of the package, over a stand-in for its engine that copies when a
test says so."""

import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import msgspec
import pytest

from splitserve.errors import ConfigError, ProtocolMismatch, TransferFailed
from splitserve.protocol.memory import MemoryRegion
from splitserve.transfer.mooncake import agent as agent_module
from splitserve.transfer.mooncake.agent import PIECE_BYTES, WINDOW, MooncakeAgent
from splitserve.transfer.mooncake.settings import Network, applied, check
from splitserve.transfer.mooncake.token import TOKEN_BYTES, TokenPage
from splitserve.transfer.plan import Span
from splitserve.transfer.posting.pairs import Pairs, Place
from splitserve.transfer.posting.started import Operation

REGION = MemoryRegion(4096, 1 << 20)
NETWORK = Network("127.0.0.1", 2)
PEER = "10.0.0.2:15001"
UNDER_WAY, DONE, FAILED, LATE = 0, 1, -1, -2


@dataclass
class Request:
    operation: Operation
    session: str
    local: int
    remote: int
    nbytes: int
    state: int = UNDER_WAY

    @property
    def piece(self) -> tuple[int, int, int]:
        return self.local, self.remote, self.nbytes


class Engine:
    """``mooncake.engine.TransferEngine`` as far as it is called. A read of a token comes at once,
    from this process."""

    def __init__(self) -> None:
        self.initialized: tuple[str, ...] = ()
        self.environment: dict[str, str] = {}
        self.registered: list[int] = []
        self.requests: list[Request] = []
        self.refuses = ""
        """What the engine does not do: a method's name."""

    def initialize(self, host: str, metadata: str, protocol: str, device: str) -> int:
        self.initialized = (host, metadata, protocol, device)
        self.environment = dict(os.environ)
        return -1 if self.refuses == "initialize" else 0

    def get_rpc_port(self) -> int:
        return 15000

    def register_memory(self, address: int, nbytes: int) -> int:
        self.registered.append(address)
        return -1 if self.refuses == "register_memory" else 0

    def unregister_memory(self, address: int) -> int:
        self.registered.remove(address)
        return -1 if self.refuses == "unregister_memory" else 0

    def batch_transfer_async_write(
        self, session: str, locals_: list[int], remotes: list[int], sizes: list[int]
    ) -> int:
        return self._take("WRITE", session, locals_, remotes, sizes)

    def batch_transfer_async_read(
        self, session: str, locals_: list[int], remotes: list[int], sizes: list[int]
    ) -> int:
        batch = self._take("READ", session, locals_, remotes, sizes)
        if batch and sizes == [TOKEN_BYTES]:
            ctypes.memmove(locals_[0], remotes[0], TOKEN_BYTES)
            self.requests.pop().state = DONE
            return 2**62
        return batch

    def transfer_check_status(self, batch: int) -> int:
        return DONE if batch == 2**62 else self.requests[batch - 1].state

    def _take(
        self,
        operation: Operation,
        session: str,
        locals_: list[int],
        remotes: list[int],
        sizes: list[int],
    ) -> int:
        if self.refuses == "batch_transfer":
            return 0
        (local,), (remote,), (nbytes,) = locals_, remotes, sizes
        self.requests.append(Request(operation, session, local, remote, nbytes))
        return len(self.requests)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The one that the next agent gets."""
    engine = Engine()
    module = ModuleType("mooncake.engine")
    module.TransferEngine = lambda: engine
    monkeypatch.setitem(sys.modules, "mooncake.engine", module)
    monkeypatch.setattr(agent_module, "version", lambda name: "0.3.13.post1")
    for name in ("MC_TCP_PROGRESS_TIMEOUT_SEC", "MC_TCP_STATUS_TIMEOUT_SEC"):
        monkeypatch.setenv(name, "1000000000")
    for name in ("MC_FORCE_TCP", "MC_TCP_PROTO", "MC_USE_TENT", "MC_USE_TEV1"):
        monkeypatch.delenv(name, raising=False)
    return engine


@pytest.fixture
def agent(engine: Engine) -> MooncakeAgent:
    return MooncakeAgent(REGION, NETWORK)


@pytest.fixture
def page() -> Iterator[TokenPage]:
    """A peer's, in this process."""
    page = TokenPage()
    yield page
    page.close()


def pairs(*spans: Span) -> Pairs:
    return Pairs(spans, 4, Place(1 << 32, 1 << 28, "cpu"), Place(1 << 40, 1 << 28, "cpu"))


def metadata(page: TokenPage, **changed: object) -> bytes:
    told = {"name": PEER, "way": "tcp", "token_at": page.address, "token": page.token}
    return msgspec.msgpack.encode(told | changed)


def test_it_listens_without_a_metadata_server_and_is_named_by_host_and_port(
    engine: Engine, agent: MooncakeAgent
) -> None:
    assert engine.initialized == ("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
    assert engine.environment["MC_FORCE_TCP"] == "1"
    assert agent.name == "127.0.0.1:15000"
    assert engine.registered[0] == REGION.address


def test_a_span_is_cut_into_pieces_and_each_is_a_request_of_its_own(
    engine: Engine, agent: MooncakeAgent
) -> None:
    copy = pairs(Span(64, 128, 2 * PIECE_BYTES + 5), Span(0, 8, 16))
    agent.post(agent.prepare(PEER, "WRITE", copy), copy.of(1))
    here, there = (1 << 32) + (1 << 28), (1 << 40) + (1 << 28)
    assert [request.piece for request in engine.requests] == [
        (here + 64, there + 128, PIECE_BYTES),
        (here + 64 + PIECE_BYTES, there + 128 + PIECE_BYTES, PIECE_BYTES),
        (here + 64 + 2 * PIECE_BYTES, there + 128 + 2 * PIECE_BYTES, 5),
        (here, there + 8, 16),
    ]
    assert {(request.operation, request.session) for request in engine.requests} == {
        ("WRITE", PEER)
    }


def test_what_is_read_comes_from_the_peers_pool_into_ours(
    engine: Engine, agent: MooncakeAgent
) -> None:
    copy = pairs(Span(64, 128, 32))
    agent.post(agent.prepare(PEER, "READ", copy), copy.of(0))
    assert [request.piece for request in engine.requests] == [((1 << 40) + 128, (1 << 32) + 64, 32)]
    assert engine.requests[0].operation == "READ"


def test_a_copy_has_ended_when_all_its_pieces_have(engine: Engine, agent: MooncakeAgent) -> None:
    copy = pairs(Span(0, 0, 3 * PIECE_BYTES))
    posted = agent.post(agent.prepare(PEER, "WRITE", copy), copy.of(0))
    for request in reversed(engine.requests):
        assert not agent.ended(posted)
        request.state = DONE
    assert agent.ended(posted)


def test_a_time_limit_that_stops_nothing_is_no_end(engine: Engine, agent: MooncakeAgent) -> None:
    copy = pairs(Span(0, 0, 16))
    posted = agent.post(agent.prepare(PEER, "WRITE", copy), copy.of(0))
    engine.requests[0].state = LATE
    assert not agent.ended(posted)


def test_a_peer_is_asked_for_a_window_of_pieces_at_a_time(
    engine: Engine, agent: MooncakeAgent
) -> None:
    copy = pairs(Span(0, 0, (WINDOW + 2) * PIECE_BYTES))
    prepared = agent.prepare(PEER, "WRITE", copy)
    first, second = (agent.post(prepared, copy.of(layer)) for layer in range(2))
    elsewhere = agent.post(agent.prepare("10.0.0.3:15001", "WRITE", copy), copy.of(0))
    assert len(engine.requests) == 2 * WINDOW
    assert not agent.ended(second)
    engine.requests[0].state = DONE
    assert not agent.ended(first)
    assert len(engine.requests) == 2 * WINDOW + 1
    for posted in (first, second, elsewhere):
        for _ in range(3):
            for request in engine.requests:
                request.state = DONE
            is_over = agent.ended(posted)
        assert is_over
    assert sum(request.nbytes for request in engine.requests) == 3 * copy.nbytes


def test_a_copy_fails_once_nothing_of_it_is_under_way(engine: Engine, agent: MooncakeAgent) -> None:
    copy = pairs(Span(0, 0, (WINDOW + 2) * PIECE_BYTES))
    posted = agent.post(agent.prepare(PEER, "WRITE", copy), copy.of(0))
    engine.requests[0].state = FAILED
    assert not agent.ended(posted)
    for request in engine.requests:
        request.state = DONE
    with pytest.raises(TransferFailed, match="gone"):
        agent.ended(posted)
    assert len(engine.requests) == WINDOW


def test_a_copy_that_is_not_taken_fails(engine: Engine, agent: MooncakeAgent) -> None:
    copy = pairs(Span(0, 0, 16))
    engine.refuses = "batch_transfer"
    posted = agent.post(agent.prepare(PEER, "WRITE", copy), copy.of(0))
    with pytest.raises(TransferFailed, match="did not start"):
        agent.ended(posted)


def test_a_peer_is_recognised_by_its_token(agent: MooncakeAgent, page: TokenPage) -> None:
    for _ in range(2):
        assert agent.join(metadata(page)) == PEER


def test_another_process_at_a_peers_address_is_refused(
    agent: MooncakeAgent, page: TokenPage
) -> None:
    with pytest.raises(TransferFailed, match="another process"):
        agent.join(metadata(page, token=bytes(TOKEN_BYTES)))


def test_a_peer_that_cannot_be_reached_is_refused(
    engine: Engine, agent: MooncakeAgent, page: TokenPage
) -> None:
    engine.refuses = "batch_transfer"
    with pytest.raises(TransferFailed, match=f"cannot reach {PEER}"):
        agent.join(metadata(page))


@pytest.mark.parametrize(
    ("changed", "why"), [({"way": "rdma"}, "by tcp here, by rdma there"), ({"name": 3}, "metadata")]
)
def test_a_peer_of_another_kind_is_refused(
    agent: MooncakeAgent, page: TokenPage, changed: dict[str, object], why: str
) -> None:
    with pytest.raises(ProtocolMismatch, match=why):
        agent.join(metadata(page, **changed))


def test_its_own_metadata_is_what_a_peer_joins(engine: Engine, agent: MooncakeAgent) -> None:
    assert agent.join(agent.metadata()) == agent.name
    agent.close()
    assert engine.registered == []


def test_memory_that_is_not_given_back_is_told(engine: Engine, agent: MooncakeAgent) -> None:
    engine.refuses = "unregister_memory"
    with pytest.raises(TransferFailed, match="give the KV pool back"):
        agent.close()


@pytest.mark.parametrize(
    ("refuses", "why"), [("initialize", "cannot start"), ("register_memory", "cannot register")]
)
def test_an_engine_that_does_not_start_is_a_wrong_setting(
    engine: Engine, refuses: str, why: str
) -> None:
    engine.refuses = refuses
    with pytest.raises(ConfigError, match=why):
        MooncakeAgent(REGION, NETWORK)


def test_a_version_that_calls_writes_done_too_early_is_refused(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "version", lambda name: "0.3.11.post1")
    with pytest.raises(ConfigError, match=r"0\.3\.11\.post1 calls a write done before"):
        MooncakeAgent(REGION, NETWORK)


def test_rdma_without_a_device_is_refused_instead_of_copied_by_tcp(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "has_rdma", lambda: False)
    with pytest.raises(ConfigError, match="no RDMA device"):
        MooncakeAgent(REGION, Network("127.0.0.1", 2, "rdma"))


def test_a_host_of_version_six_is_put_in_brackets(engine: Engine) -> None:
    assert MooncakeAgent(REGION, Network("::1", 2)).name == "[::1]:15000"


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"MC_TCP_PROTO": "1"}, "before it has arrived"),
        ({"MC_USE_TENT": "0"}, "does not know"),
        ({"MC_TCP_PROGRESS_TIMEOUT_SEC": "5"}, "may land later"),
        ({"MC_TCP_STATUS_TIMEOUT_SEC": "5"}, "may land later"),
    ],
)
def test_an_environment_that_breaks_a_promise_is_refused(setting: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check(setting, "tcp")


def test_tcp_alone_is_forbidden_to_rdma_and_to_nobody_else() -> None:
    check({"MC_FORCE_TCP": "1"}, "tcp")
    with pytest.raises(ConfigError, match="forbids the way rdma"):
        check({"MC_FORCE_TCP": "1"}, "rdma")


@pytest.mark.parametrize(("way", "forced"), [("tcp", True), ("rdma", False)])
def test_what_is_set_for_an_engine_goes_and_what_each_copy_reads_stays(
    way: agent_module.Way, forced: bool
) -> None:
    environment = {"MC_TCP_LANES_PER_PEER": "9"}
    with applied(environment, Network("127.0.0.1", 2, way)):
        assert ("MC_FORCE_TCP" in environment) is forced
        assert environment["MC_TCP_LANES_PER_PEER"] == "9"
        assert environment["MC_TCP_ENABLE_CONNECTION_POOL"] == "1"
    stays = {"MC_TCP_PROGRESS_TIMEOUT_SEC", "MC_TCP_STATUS_TIMEOUT_SEC"}
    assert set(environment) == {"MC_TCP_LANES_PER_PEER"} | stays
    check(environment, way)


def test_each_token_has_a_place_of_its_own_for_long(page: TokenPage) -> None:
    rooms = [page.room() for _ in range(100)]
    assert len(set(rooms)) == 100
    first, last = page.address + TOKEN_BYTES, page.address + page.nbytes - TOKEN_BYTES
    assert all(first <= room <= last for room in rooms)
    ctypes.memmove(rooms[3], bytes(range(TOKEN_BYTES)), TOKEN_BYTES)
    assert page.read(rooms[3]) == bytes(range(TOKEN_BYTES))
    assert page.read(rooms[4]) == bytes(TOKEN_BYTES)
