"""Connector nixl over the real package and another process that is frozen or killed.

Over TCP, since there the other process takes part in every copy; by the kernel's copies between
processes (what UCX chooses on one host) a frozen process is no obstacle.
"""

import ctypes
import hashlib
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import pytest

from splitserve.errors import ConfigError, ProtocolMismatch, TransferFailed
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import TransferEvent
from splitserve.transfer.connectors.nixl import NixlConnector
from splitserve.transfer.plan import Span

LAYOUT = KVLayout("bfloat16", 3, 8, 64, 16, 256, 2)
"""24 MiB, more than any socket holds."""

ALL = Span(0, 0, LAYOUT.layer_bytes)
PATIENCE_S = 0.2

CHILD = """
import ctypes, hashlib, mmap, sys
import msgspec
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.connectors.nixl import NixlConnector
layout = msgspec.json.decode(sys.argv[1], type=KVLayout)
memory = mmap.mmap(-1, layout.pool_bytes)
view = (ctypes.c_char * layout.pool_bytes).from_buffer(memory)
connector = NixlConnector()
connector.open(MemoryRegion(ctypes.addressof(view), layout.pool_bytes), layout)
print(connector.describe().hex(), flush=True)
for line in sys.stdin:
    if line.startswith("fill"):
        memory[:] = bytes([int(line.split()[1])]) * layout.pool_bytes
    print(hashlib.sha256(memory).hexdigest(), flush=True)
connector.close()
"""

needs_nixl = pytest.mark.usefixtures("nixl")


@pytest.fixture
def nixl() -> None:
    pytest.importorskip("nixl", reason="the package nixl is not installed (extra nixl)")


class OtherProcess:
    """A worker's pool of zeros in a process of its own."""

    def __init__(self) -> None:
        layout = msgspec.json.encode(LAYOUT).decode()
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, layout],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.description = bytes.fromhex(self.process.stdout.readline())

    def ask(self, line: str) -> str:
        """The digest of its pool, after ``line``; empty when it has died."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self.process.stdout.readline().strip()

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Rig:
    connector: NixlConnector
    memory: mmap.mmap

    def until(self, found: Callable[[list[TransferEvent]], bool]) -> list[TransferEvent]:
        """What ``poll`` told until ``found`` is true of it."""
        told: list[TransferEvent] = []
        while not found(told):
            told += self.connector.poll()
        return told

    def ends(self, count: int) -> list[TransferEvent]:
        return self.until(lambda told: len(told) == count)


def opened(fill: int) -> Iterator[Rig]:
    memory = mmap.mmap(-1, LAYOUT.pool_bytes)
    memory[:] = bytes([fill]) * LAYOUT.pool_bytes
    view = (ctypes.c_char * LAYOUT.pool_bytes).from_buffer(memory)
    connector = NixlConnector(patience_s=PATIENCE_S)
    connector.open(MemoryRegion(ctypes.addressof(view), LAYOUT.pool_bytes), LAYOUT)
    yield Rig(connector, memory)
    connector.close()
    del view
    memory.close()


@pytest.fixture
def rig(nixl: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setenv("UCX_TLS", "tcp")
    yield from opened(fill=7)


@pytest.fixture
def near(rig: Rig) -> Iterator[Rig]:
    """A peer in this process."""
    yield from opened(fill=0)


@pytest.fixture
def other(rig: Rig) -> Iterator[OtherProcess]:
    process = OtherProcess()
    yield process
    process.kill()
    process.process.communicate()


def filled(value: int) -> str:
    return hashlib.sha256(bytes([value]) * LAYOUT.pool_bytes).hexdigest()


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
    peer = reconnected(rig, other)
    assert other.ask("digest") == filled(7)
    assert other.ask("fill 0") == filled(0)
    back = rig.connector.reader(peer, [ALL])
    for layer in range(3):
        back.read(layer)
    assert {event.state for event in rig.ends(3)} == {"done"}
    assert rig.memory[:] == bytes(LAYOUT.pool_bytes)
    assert other.ask("digest") == filled(0)


def reconnected(rig: Rig, other: OtherProcess) -> int:
    while True:
        try:
            return rig.connector.connect(other.description)
        except TransferFailed as error:
            assert "not ended yet" in str(error)  # noqa: PT017 - any other would be raised above


def test_a_frozen_peers_reads_never_land_after_disconnect_and_other_peers_are_read_on(
    rig: Rig, other: OtherProcess
) -> None:
    second = OtherProcess()
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
    second.kill()
    second.process.communicate()


def test_what_was_made_before_disconnect_copies_no_more(rig: Rig, near: Rig) -> None:
    peer = rig.connector.connect(near.connector.describe())
    writer, reader = rig.connector.writer(peer, [ALL]), rig.connector.reader(peer, [ALL])
    rig.connector.disconnect(peer)
    writer.write(0)
    reader.read(0)
    assert ["not connected" in event.error for event in rig.ends(2)] == [True, True]
    assert (set(rig.memory[:]), set(near.memory[:])) == ({7}, {0})


def test_the_way_is_tcp_where_nothing_else_is_allowed(rig: Rig, near: Rig) -> None:
    peer = rig.connector.connect(near.connector.describe())
    assert rig.connector.way(peer) == "tcp"
    rig.connector.disconnect(peer)
    assert rig.connector.way(peer) is None


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
