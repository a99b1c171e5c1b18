"""What every connector promises, run over each of them.

Both pools lie in this process, but for connector cuda_ipc, which needs a GPU and whose receiving
pool lies in a child process.
"""

import ctypes
import hashlib
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from splitserve.errors import BugError, ConfigError, PeerError, ProtocolMismatch
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import Connector, PeerId, TransferEvent, TransferId
from splitserve.transfer.plan import BlockRun
from splitserve.transfer.registry import CONNECTORS, create_connector

LAYOUT = KVLayout("bfloat16", 3, 2, 8, 4, 10, 2)
TARGET_LAYOUT = KVLayout("bfloat16", 3, 2, 8, 4, 13, 2)
ALL = BlockRun(0, 0, LAYOUT.num_blocks)
FIRST = BlockRun(0, 0, 1)

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
    print(hashlib.sha256(pool.read()).hexdigest(), flush=True)
"""


class Readable(Protocol):
    def read(self) -> bytes: ...


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

    def write(self, data: bytes) -> None:
        self.memory[:] = data

    def read(self) -> bytes:
        return bytes(self.memory)

    def close(self) -> None:
        del self._view
        self.memory.close()
        os.close(self.fd)


def some_bytes(layout: KVLayout, seed: int) -> bytes:
    return hashlib.shake_256(bytes([seed])).digest(layout.pool_bytes)


@dataclass
class Pair:
    """A writer, and a pool of zeros of which ``description`` tells it."""

    writer: Connector
    source: Readable
    target: Readable
    description: bytes

    def connect(self) -> PeerId:
        return self.writer.connect(self.description)

    def expected(self, layer: int, runs: Sequence[BlockRun]) -> bytes:
        """The target once ``runs`` of ``layer`` have arrived and nothing else."""
        source, target = self.source.read(), bytearray(TARGET_LAYOUT.pool_bytes)
        for run in runs:
            start = LAYOUT.offset(layer, run.source)
            end = TARGET_LAYOUT.offset(layer, run.target)
            nbytes = run.count * LAYOUT.block_bytes
            target[end : end + nbytes] = source[start : start + nbytes]
        return bytes(target)


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.gpu if name == "cuda_ipc" else ())
        for name in sorted(CONNECTORS)
    ]
)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pair(name: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    yield from device_pair(request) if name == "cuda_ipc" else local_pair(name)


def local_pair(name: str) -> Iterator[Pair]:
    source, target = SharedPool(LAYOUT), SharedPool(TARGET_LAYOUT)
    source.write(some_bytes(LAYOUT, 1))
    writer, reader = create_connector(name), create_connector(name)
    writer.open(source.region, LAYOUT)
    reader.open(target.region, TARGET_LAYOUT)
    yield Pair(writer, source, target, reader.describe())
    writer.close()
    reader.close()
    source.close()
    target.close()


def device_pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    from device_pools import DeviceSource

    target = request.getfixturevalue("device_target")
    source = DeviceSource(LAYOUT)
    source.write(some_bytes(LAYOUT, 1))
    writer = create_connector("cuda_ipc")
    writer.open(source.region, LAYOUT)
    yield Pair(writer, source, target, target.new(TARGET_LAYOUT))
    writer.close()
    source.close()


@pytest.fixture(scope="module")
def device_target() -> Iterator[object]:
    from device_pools import DeviceTarget

    target = DeviceTarget()
    yield target
    target.close()


def finish(connector: Connector, transfer: TransferId) -> TransferEvent:
    """Polls until the transfer has ended."""
    while True:
        for event in connector.poll():
            if event.transfer == transfer:
                return event


@pytest.mark.parametrize("layer", range(LAYOUT.num_layers))
def test_bytes_arrive_where_they_were_sent_and_nowhere_else(pair: Pair, layer: int) -> None:
    runs = [BlockRun(0, 4, 1), BlockRun(2, 10, 3), BlockRun(9, 0, 1)]
    event = finish(pair.writer, pair.writer.writer(pair.connect(), runs).write(layer))
    assert (event.state, event.nbytes, event.error) == ("done", 5 * LAYOUT.block_bytes, "")
    assert pair.target.read() == pair.expected(layer, runs)


def test_an_end_is_reported_once(pair: Pair) -> None:
    writer = pair.writer.writer(pair.connect(), [FIRST])
    transfers = {writer.write(layer) for layer in (0, 1, 2, 0, 1)}
    assert len(transfers) == 5
    ended: list[TransferId] = []
    while len(ended) < 5:
        ended += [event.transfer for event in pair.writer.poll()]
    assert sorted(ended) == sorted(transfers)
    assert pair.writer.poll() == []


@pytest.mark.parametrize("made", ["before", "after"])
def test_writing_to_a_disconnected_peer_fails_and_touches_nothing(pair: Pair, made: str) -> None:
    peer = pair.connect()
    writer = pair.writer.writer(peer, [FIRST])
    pair.writer.disconnect(peer)
    pair.writer.disconnect(peer)
    if made == "after":
        writer = pair.writer.writer(peer, [FIRST])
    event = finish(pair.writer, writer.write(0))
    assert (event.state, event.nbytes) == ("failed", 0)
    assert "not connected" in event.error
    assert pair.target.read() == bytes(TARGET_LAYOUT.pool_bytes)


def test_a_peer_can_be_connected_again(pair: Pair) -> None:
    pair.writer.disconnect(pair.connect())
    writer = pair.writer.writer(pair.connect(), [ALL])
    assert finish(pair.writer, writer.write(0)).state == "done"
    assert pair.target.read() == pair.expected(0, [ALL])


@pytest.mark.parametrize(
    "run", [BlockRun(9, 0, 2), BlockRun(0, 12, 2), BlockRun(-1, 0, 1)], ids=str
)
def test_blocks_outside_the_pools_are_refused_before_any_byte_moves(
    pair: Pair, run: BlockRun
) -> None:
    with pytest.raises(BugError, match="leaves a pool"):
        pair.writer.writer(pair.connect(), [FIRST, run])
    assert pair.target.read() == bytes(TARGET_LAYOUT.pool_bytes)


def test_a_layer_outside_the_pools_is_refused_before_any_byte_moves(pair: Pair) -> None:
    writer = pair.writer.writer(pair.connect(), [FIRST])
    with pytest.raises(BugError, match="no layer 3"):
        writer.write(LAYOUT.num_layers)
    assert pair.target.read() == bytes(TARGET_LAYOUT.pool_bytes)


def test_a_foreign_description_is_refused(pair: Pair) -> None:
    with pytest.raises(PeerError):
        pair.writer.connect(b"\x93\x01\x02\x03")


def test_a_pool_of_another_shape_is_refused_by_name(pair: Pair) -> None:
    other = msgspec.msgpack.decode(pair.description)
    other["layout"]["block_size"] = 2
    with pytest.raises(ProtocolMismatch, match="block_size"):
        pair.writer.connect(msgspec.msgpack.encode(other))


def test_a_pool_that_is_smaller_than_it_says_is_refused(pair: Pair) -> None:
    other = msgspec.msgpack.decode(pair.description)
    other["layout"]["num_blocks"] += 1
    with pytest.raises(ProtocolMismatch, match="bytes"):
        pair.writer.connect(msgspec.msgpack.encode(other))


def test_use_before_open_is_a_bug(name: str) -> None:
    with pytest.raises(BugError):
        create_connector(name).describe()


def test_close_may_be_called_twice(pair: Pair) -> None:
    pair.connect()
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
    pool.write(some_bytes(LAYOUT, 7))
    writer = create_connector("shm")
    writer.open(pool.region, LAYOUT)
    yield writer, pool
    writer.close()
    pool.close()


def test_shm_reaches_another_process(
    child: subprocess.Popen[str], shm_writer: tuple[Connector, SharedPool]
) -> None:
    writer, pool = shm_writer
    layers = writer.writer(writer.connect(bytes.fromhex(ask(child))), [ALL])
    transfers = [layers.write(layer) for layer in range(LAYOUT.num_layers)]
    assert finish(writer, transfers[-1]).nbytes == LAYOUT.layer_bytes
    assert ask(child, "digest") == hashlib.sha256(pool.read()).hexdigest()


def test_shm_survives_the_peers_death_and_refuses_to_connect_to_it(
    child: subprocess.Popen[str], shm_writer: tuple[Connector, SharedPool]
) -> None:
    writer, _ = shm_writer
    description = bytes.fromhex(ask(child))
    peer = writer.connect(description)
    child.kill()
    child.wait()
    assert finish(writer, writer.writer(peer, [ALL]).write(0)).state == "done"
    writer.disconnect(peer)
    with pytest.raises(PeerError):
        writer.connect(description)


def test_shm_refuses_memory_that_is_not_shared(shm_writer: tuple[Connector, SharedPool]) -> None:
    with pytest.raises(ConfigError, match="shared memory"):
        create_connector("shm").open(MemoryRegion(4096, LAYOUT.pool_bytes), LAYOUT)


@pytest.mark.parametrize("name", ["memory"], indirect=True)
def test_memory_refuses_a_pool_of_another_process(pair: Pair) -> None:
    foreign = msgspec.msgpack.decode(pair.description)
    foreign["pid"] = os.getpid() + 1
    with pytest.raises(PeerError, match="one process"):
        pair.writer.connect(msgspec.msgpack.encode(foreign))
