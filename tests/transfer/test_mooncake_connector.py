"""Connector mooncake: what it refuses without the package, and over the real one."""

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from ssl import PROTOCOL_TLS_CLIENT, PROTOCOL_TLS_SERVER, SSLContext

import msgspec
import pytest
from posting_pools import LAYOUT, PATIENCE_S, Rig, opened

from splitserve.errors import BugError, ConfigError, ProtocolMismatch, TransferFailed
from splitserve.protocol.gate import Tls
from splitserve.protocol.memory import MemoryRegion
from splitserve.transfer.connectors.mooncake import MooncakeConnector
from splitserve.transfer.options import NetworkOptions
from splitserve.transfer.plan import Span
from splitserve.transfer.registry import create_connector


@pytest.fixture
def mooncake() -> None:
    if find_spec("mooncake") is None:
        pytest.skip("the package of Mooncake is not installed (extra mooncake)")
    try:
        import_module("mooncake.engine")
    except ImportError as error:
        pytest.skip(f"the package of Mooncake cannot be used: {error}")


@pytest.fixture
def rig(mooncake: None) -> Iterator[Rig]:
    with opened(MooncakeConnector(patience_s=PATIENCE_S), fill=7) as rig:
        yield rig


@pytest.fixture
def near(rig: Rig) -> Iterator[Rig]:
    """A peer in this process."""
    with opened(MooncakeConnector(patience_s=PATIENCE_S), fill=0) as near:
        yield near


def test_more_pieces_than_are_submitted_at_a_time_all_arrive(rig: Rig, near: Rig) -> None:
    """16 bytes each, every second 16."""
    peer = rig.connector.connect(near.connector.describe())
    spans = [Span(at, at, 16) for at in range(0, 32 * 300, 32)]
    writer = rig.connector.writer(peer, spans)
    started = [writer.write(layer) for layer in range(LAYOUT.num_layers)]
    told = rig.ends(len(started))
    assert {(event.state, event.nbytes) for event in told} == {("done", 16 * 300)}
    held = bytes(near.memory[: 32 * 300])
    assert held == (bytes([7]) * 16 + bytes(16)) * 300


def test_the_way_is_known_while_a_peer_is_connected(rig: Rig, near: Rig) -> None:
    peer = rig.connector.connect(near.connector.describe())
    assert rig.connector.route(peer).way == "tcp"
    rig.connector.disconnect(peer)
    with pytest.raises(BugError):
        rig.connector.route(peer)


@pytest.mark.parametrize("wrong", [{"device": "cuda:x"}, {"address": -1}, {"metadata": 3}])
def test_a_description_that_means_no_pool_is_refused(
    rig: Rig, near: Rig, wrong: dict[str, object]
) -> None:
    told = msgspec.msgpack.decode(near.connector.describe())
    with pytest.raises(ProtocolMismatch, match="not of connector mooncake"):
        rig.connector.connect(msgspec.msgpack.encode(told | wrong))


def test_another_process_at_the_same_address_is_refused(rig: Rig, near: Rig) -> None:
    told = msgspec.msgpack.decode(near.connector.describe())
    session = msgspec.msgpack.decode(told["metadata"])
    other = msgspec.msgpack.encode(session | {"token": bytes(16)})
    with pytest.raises(TransferFailed, match="another process"):
        rig.connector.connect(msgspec.msgpack.encode(told | {"metadata": other}))
    assert rig.connector.connect(near.connector.describe())


def test_a_pool_that_is_gone_is_refused(rig: Rig, mooncake: None) -> None:
    with opened(MooncakeConnector(patience_s=PATIENCE_S), fill=0) as gone:
        description = gone.connector.describe()
    with pytest.raises(TransferFailed):
        rig.connector.connect(description)


def test_without_the_package_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mooncake.engine", None)
    with pytest.raises(ConfigError, match=r"pip install 'splitserve\[mooncake\]'"):
        create_connector("mooncake").open(MemoryRegion(4096, LAYOUT.pool_bytes), LAYOUT)


def test_memory_of_a_gpu_is_refused_with_the_cure() -> None:
    region = MemoryRegion(4096, LAYOUT.pool_bytes, "cuda:0")
    with pytest.raises(ConfigError, match="choose connector nixl"):
        MooncakeConnector().open(region, LAYOUT)


def test_a_fixed_port_is_refused() -> None:
    with pytest.raises(ConfigError, match="chooses its ports itself"):
        MooncakeConnector(NetworkOptions(port=4000))


def test_tls_is_refused_and_not_left_out() -> None:
    tls = Tls(SSLContext(PROTOCOL_TLS_SERVER), SSLContext(PROTOCOL_TLS_CLIENT))
    with pytest.raises(ConfigError, match="cannot encrypt"):
        MooncakeConnector(NetworkOptions(tls=tls))
