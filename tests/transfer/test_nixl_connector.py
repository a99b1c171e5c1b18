"""Connector nixl over the real package and a peer in this process, over TCP."""

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest
from posting_pools import ALL, LAYOUT, ONLY_TCP, PATIENCE_S, Rig, opened

from splitserve.errors import BugError, ConfigError, ProtocolMismatch, TransferFailed
from splitserve.protocol.memory import MemoryRegion
from splitserve.transfer.connectors.nixl import NixlConnector

needs_nixl = pytest.mark.usefixtures("nixl")


@pytest.fixture
def nixl() -> None:
    pytest.importorskip("nixl", reason="the package nixl is not installed (extra nixl)")


@pytest.fixture
def rig(nixl: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setenv("UCX_TLS", ONLY_TCP)
    with opened(NixlConnector(patience_s=PATIENCE_S), fill=7) as rig:
        yield rig


@pytest.fixture
def near(rig: Rig) -> Iterator[Rig]:
    """A peer in this process."""
    with opened(NixlConnector(patience_s=PATIENCE_S), fill=0) as near:
        yield near


def test_the_way_is_tcp_where_nothing_else_is_allowed(rig: Rig, near: Rig) -> None:
    peer = rig.connector.connect(near.connector.describe())
    assert rig.connector.route(peer).way == "tcp"
    rig.connector.disconnect(peer)
    with pytest.raises(BugError):
        rig.connector.route(peer)


@pytest.mark.parametrize("wrong", [{"device": "cuda:x"}, {"address": -1}, {"ways": ["pigeon"]}])
def test_a_description_that_means_no_pool_is_refused(
    rig: Rig, near: Rig, wrong: dict[str, object]
) -> None:
    told = msgspec.msgpack.decode(near.connector.describe())
    with pytest.raises(ProtocolMismatch, match="not of connector nixl"):
        rig.connector.connect(msgspec.msgpack.encode(told | wrong))


def test_a_description_that_names_another_agent_is_refused(rig: Rig, near: Rig) -> None:
    told = msgspec.msgpack.decode(near.connector.describe())
    with pytest.raises(TransferFailed, match="says that it is nobody"):
        rig.connector.connect(msgspec.msgpack.encode(told | {"name": "nobody"}))
    assert rig.connector.connect(near.connector.describe())


def test_a_wrong_description_of_a_connected_pool_does_not_cut_it_off(rig: Rig, near: Rig) -> None:
    peer = rig.connector.connect(near.connector.describe())
    told = msgspec.msgpack.decode(near.connector.describe())
    with pytest.raises(TransferFailed, match="says that it is nobody"):
        rig.connector.connect(msgspec.msgpack.encode(told | {"name": "nobody"}))
    rig.connector.writer(peer, [ALL]).write(0)
    assert [event.state for event in rig.ends(1)] == ["done"]
    assert set(near.memory[: LAYOUT.layer_bytes]) == {7}


@needs_nixl
def test_a_setting_that_leaves_no_transport_is_refused_with_the_cure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UCX_TLS", "posix")
    with pytest.raises(ConfigError, match="UCX_TLS"):
        NixlConnector().open(MemoryRegion(4096, LAYOUT.pool_bytes), LAYOUT)


def test_without_the_package_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for package in ("nixl", "nixl_cu12", "nixl_cu13"):
        monkeypatch.setitem(sys.modules, f"{package}._api", None)
    with pytest.raises(ConfigError, match=r"needs the nixl package: pip install 'splitserve\[nixl"):
        NixlConnector().open(MemoryRegion(4096, LAYOUT.pool_bytes), LAYOUT)


@pytest.mark.parametrize("device", ["cuda", "mps:0", "cuda:x"])
def test_a_device_that_it_does_not_know_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match="knows no device"):
        NixlConnector().open(MemoryRegion(4096, LAYOUT.pool_bytes, device), LAYOUT)


@needs_nixl
def test_the_thread_of_nixl_is_told_to_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    package = next(name for name in ("nixl_cu13", "nixl_cu12", "nixl") if find_spec(name))
    bindings = import_module(f"{package}._api").nixlBind
    told: list[int] = []
    agent = bindings.nixlAgent

    def spied(name: str, config: Any) -> Any:
        told.append(config.pthrDelay)
        return agent(name, config)

    monkeypatch.setattr(bindings, "nixlAgent", spied)
    with opened(NixlConnector(patience_s=PATIENCE_S), fill=0):
        assert told[0] > 0
    assert bindings.nixlAgentConfig().pthrDelay == 0, "others' agents are as they were"
