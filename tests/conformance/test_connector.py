"""What every connector promises, run over each of them.

``local`` pairs live in this process; ``remote`` pairs have their receiving pool in a child
process, which reports the bytes that arrived.
"""

import ctypes
import hashlib
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from splitserve.errors import BugError, ConfigError, PeerError, ProtocolMismatch
from splitserve.protocol.memory import Copy, KVLayout, MemoryRegion
from splitserve.transfer.base import Connector, TransferEvent, TransferId
from splitserve.transfer.registry import CONNECTORS, create_connector

LAYOUT = KVLayout("bfloat16", 3, 2, 8, 4, 10, 2)

CHILD = """
import hashlib, sys
sys.path.insert(0, sys.argv[2])
from test_connector import LAYOUT, SharedPool
from splitserve.transfer.registry import create_connector
pool = SharedPool(LAYOUT)
connector = create_connector(sys.argv[1])
connector.open(pool.region, LAYOUT)
print(connector.describe().hex(), flush=True)
for line in sys.stdin:
    print(hashlib.sha256(bytes(pool.memory)).hexdigest(), flush=True)
"""


class SharedPool:
    """A pool in shared memory, as an engine makes it."""

    def __init__(self, layout: KVLayout) -> None:
        self.fd = os.memfd_create("pool")
        os.ftruncate(self.fd, layout.pool_bytes)
        self.memory = mmap.mmap(self.fd, layout.pool_bytes)
        self._view = (ctypes.c_char * layout.pool_bytes).from_buffer(self.memory)
        self.region = MemoryRegion(
            ctypes.addressof(self._view), layout.pool_bytes, shared_fd=self.fd
        )

    def fill(self, seed: int) -> None:
        stream = hashlib.shake_256(bytes([seed])).digest(len(self.memory))
        self.memory[:] = stream

    def close(self) -> None:
        del self._view
        self.memory.close()
        os.close(self.fd)


@dataclass
class Pair:
    """A writer connected to a reader's pool."""

    writer: Connector
    source: SharedPool
    target: SharedPool
    reader: Connector


@pytest.fixture(params=sorted(CONNECTORS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pair(name: str) -> Iterator[Pair]:
    source, target = SharedPool(LAYOUT), SharedPool(LAYOUT)
    source.fill(1)
    writer, reader = create_connector(name), create_connector(name)
    writer.open(source.region, LAYOUT)
    reader.open(target.region, LAYOUT)
    yield Pair(writer, source, target, reader)
    writer.close()
    reader.close()
    source.close()
    target.close()


def finish(connector: Connector, transfer: TransferId) -> TransferEvent:
    """Polls until the transfer has ended."""
    while True:
        for event in connector.poll():
            if event.transfer == transfer:
                return event


def test_bytes_arrive_where_they_were_sent_and_nowhere_else(pair: Pair) -> None:
    peer = pair.writer.connect(pair.reader.describe())
    copies = [Copy(0, 64, 32), Copy(128, 512, 256)]
    event = finish(pair.writer, pair.writer.write(peer, copies))
    assert (event.state, event.nbytes, event.error) == ("done", 288, "")
    expected = bytearray(LAYOUT.pool_bytes)
    for copy in copies:
        expected[copy.target : copy.target + copy.nbytes] = pair.source.memory[
            copy.source : copy.source + copy.nbytes
        ]
    assert bytes(pair.target.memory) == bytes(expected)


def test_an_end_is_reported_once(pair: Pair) -> None:
    peer = pair.writer.connect(pair.reader.describe())
    transfers = {pair.writer.write(peer, [Copy(0, 0, 16)]) for _ in range(5)}
    assert len(transfers) == 5
    ended: list[TransferId] = []
    while len(ended) < 5:
        ended += [event.transfer for event in pair.writer.poll()]
    assert sorted(ended) == sorted(transfers)
    assert pair.writer.poll() == []


def test_the_peers_layout_is_known(pair: Pair) -> None:
    peer = pair.writer.connect(pair.reader.describe())
    assert pair.writer.layout(peer) == LAYOUT


def test_writing_to_a_disconnected_peer_fails_and_touches_nothing(pair: Pair) -> None:
    peer = pair.writer.connect(pair.reader.describe())
    pair.writer.disconnect(peer)
    pair.writer.disconnect(peer)
    event = finish(pair.writer, pair.writer.write(peer, [Copy(0, 0, 16)]))
    assert event.state == "failed"
    assert event.error
    assert bytes(pair.target.memory) == bytes(LAYOUT.pool_bytes)


def test_a_peer_can_be_connected_again(pair: Pair) -> None:
    first = pair.writer.connect(pair.reader.describe())
    pair.writer.disconnect(first)
    second = pair.writer.connect(pair.reader.describe())
    assert finish(pair.writer, pair.writer.write(second, [Copy(0, 0, 64)])).state == "done"
    assert pair.target.memory[:64] == pair.source.memory[:64]


def test_a_copy_outside_the_pools_is_refused_before_any_byte_moves(pair: Pair) -> None:
    peer = pair.writer.connect(pair.reader.describe())
    with pytest.raises(BugError, match="leaves a pool"):
        pair.writer.write(peer, [Copy(0, LAYOUT.pool_bytes - 8, 16)])
    assert bytes(pair.target.memory) == bytes(LAYOUT.pool_bytes)


def test_a_foreign_description_is_refused(pair: Pair) -> None:
    with pytest.raises(PeerError):
        pair.writer.connect(b"\x93\x01\x02\x03")


def test_a_pool_of_another_shape_is_refused_by_name(name: str, pair: Pair) -> None:
    other = KVLayout("bfloat16", 3, 2, 8, 8, 5, 2)
    pool = SharedPool(other)
    reader = create_connector(name)
    reader.open(pool.region, other)
    with pytest.raises(ProtocolMismatch, match="block_size"):
        pair.writer.connect(reader.describe())
    reader.close()
    pool.close()


def test_use_before_open_is_a_bug(name: str) -> None:
    with pytest.raises(BugError):
        create_connector(name).describe()


def test_close_may_be_called_twice(pair: Pair) -> None:
    pair.writer.connect(pair.reader.describe())
    pair.writer.close()
    pair.writer.close()


def test_an_unknown_name_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="shm"):
        create_connector("carrier-pigeon")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, "shm", str(Path(__file__).parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def ask(process: subprocess.Popen[str], line: str = "") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    if line:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.fixture
def shm_writer() -> Iterator[tuple[Connector, SharedPool]]:
    pool = SharedPool(LAYOUT)
    pool.fill(7)
    writer = create_connector("shm")
    writer.open(pool.region, LAYOUT)
    yield writer, pool
    writer.close()
    pool.close()


def test_shm_reaches_another_process(
    child: subprocess.Popen[str], shm_writer: tuple[Connector, SharedPool]
) -> None:
    writer, pool = shm_writer
    peer = writer.connect(bytes.fromhex(ask(child)))
    transfer = writer.write(peer, [Copy(0, 0, LAYOUT.pool_bytes)])
    assert finish(writer, transfer).nbytes == LAYOUT.pool_bytes
    assert ask(child, "digest") == hashlib.sha256(bytes(pool.memory)).hexdigest()


def test_shm_survives_the_peers_death_and_refuses_to_connect_to_it(
    child: subprocess.Popen[str], shm_writer: tuple[Connector, SharedPool]
) -> None:
    writer, _ = shm_writer
    description = bytes.fromhex(ask(child))
    peer = writer.connect(description)
    child.kill()
    child.wait()
    assert finish(writer, writer.write(peer, [Copy(0, 0, 4096)])).state == "done"
    writer.disconnect(peer)
    with pytest.raises(PeerError):
        writer.connect(description)


def test_shm_refuses_memory_that_is_not_shared(shm_writer: tuple[Connector, SharedPool]) -> None:
    with pytest.raises(ConfigError, match="shared memory"):
        create_connector("shm").open(MemoryRegion(4096, 4096), LAYOUT)


@pytest.mark.parametrize("name", ["memory"], indirect=True)
def test_memory_refuses_a_pool_of_another_process(pair: Pair) -> None:
    foreign = msgspec.msgpack.decode(pair.reader.describe())
    foreign["pid"] = os.getpid() + 1
    with pytest.raises(PeerError, match="one process"):
        pair.writer.connect(msgspec.msgpack.encode(foreign))
