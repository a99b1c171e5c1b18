"""Connectors with a posting thread, over the real packages and another process that is frozen or
killed.

Over TCP, since there the other process takes part in every copy; by the kernel's copies between
processes (what UCX chooses on one host) a frozen process is no obstacle.
"""

from collections.abc import Callable, Iterator
from importlib import import_module

import pytest
from posting_pools import ALL, LAYOUT, ONLY_TCP, PATIENCE_S, OtherProcess, Rig, filled, opened

from splitserve.errors import TransferFailed
from splitserve.transfer.base import Connector
from splitserve.transfer.connectors.mooncake import MooncakeConnector
from splitserve.transfer.connectors.nixl import NixlConnector
from splitserve.transfer.plan import Span

pytestmark = pytest.mark.interop

CONNECTORS: dict[str, tuple[str, Callable[[], Connector]]] = {
    "mooncake": ("mooncake.engine", lambda: MooncakeConnector(patience_s=PATIENCE_S)),
    "nixl": ("nixl", lambda: NixlConnector(patience_s=PATIENCE_S)),
}
"""What is imported of its package, and a connector that does not wait long."""


@pytest.fixture(params=sorted(CONNECTORS))
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = str(request.param)
    try:
        import_module(CONNECTORS[name][0])
    except ImportError as error:
        pytest.skip(f"the package of extra {name} cannot be used: {error}")
    monkeypatch.setenv("UCX_TLS", ONLY_TCP)
    return name


@pytest.fixture
def rig(name: str) -> Iterator[Rig]:
    with opened(CONNECTORS[name][1](), fill=7) as rig:
        yield rig


@pytest.fixture
def other(name: str, rig: Rig) -> Iterator[OtherProcess]:
    process = OtherProcess(name)
    yield process
    process.end()


def test_a_peer_killed_mid_copy_fails_what_was_open(rig: Rig, other: OtherProcess) -> None:
    peer = rig.connector.connect(other.description)
    writer, reader = rig.connector.writer(peer, [ALL]), rig.connector.reader(peer, [ALL])
    writer.write(0)
    rig.ends(1)
    other.freeze()
    started = [writer.write(layer) for layer in range(3)] + [reader.read(0)]
    assert rig.connector.poll() == []
    other.kill()
    told = rig.ends(4)
    assert sorted(event.transfer for event in told) == sorted(started)
    assert {event.state for event in told} == {"failed"}
    assert all("gone" in event.error for event in told), told
    rig.connector.disconnect(peer)
    assert rig.connector.poll() == []


def test_a_frozen_peers_writes_fail_at_disconnect_and_it_is_joined_again_only_once_they_ended(
    rig: Rig, other: OtherProcess
) -> None:
    peer = rig.connector.connect(other.description)
    writer = rig.connector.writer(peer, [ALL])
    other.freeze()
    started = [writer.write(layer) for layer in range(3)]
    rig.connector.disconnect(peer)
    told = rig.connector.poll()
    assert sorted(event.transfer for event in told) == sorted(started)
    assert "failed" in {event.state for event in told}
    with pytest.raises(TransferFailed, match="not ended yet"):
        rig.connector.connect(other.description)
    other.thaw()
    peer = rig.reconnected(other.description)
    assert other.ask("digest") == filled(7)
    assert other.ask("fill 0") == filled(0)
    back = rig.connector.reader(peer, [ALL])
    for layer in range(3):
        back.read(layer)
    assert {event.state for event in rig.ends(3)} == {"done"}
    assert rig.memory[:] == bytes(LAYOUT.pool_bytes)
    assert other.ask("digest") == filled(0)


def test_a_frozen_peers_reads_never_land_after_disconnect_and_other_peers_are_read_on(
    name: str, rig: Rig, other: OtherProcess
) -> None:
    second = OtherProcess(name)
    peer, next_peer = (rig.connector.connect(process.description) for process in (other, second))
    other.freeze()
    reader = rig.connector.reader(peer, [ALL])
    started = [reader.read(layer) for layer in range(3)]
    rig.connector.disconnect(peer)
    told = rig.connector.poll()
    assert sorted(event.transfer for event in told) == sorted(started)
    assert {event.state for event in told} == {"failed"}
    other.thaw()
    other.ask("digest")
    elsewhere = rig.connector.reader(next_peer, [Span(0, 0, 64)])
    elsewhere.read(0)
    assert [event.state for event in rig.ends(1)] == ["done"]
    assert bytes(rig.memory[:64]) == bytes(64)
    assert set(rig.memory[64:]) == {7}
    second.end()
