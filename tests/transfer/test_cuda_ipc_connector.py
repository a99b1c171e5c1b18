"""What connector cuda_ipc decides, over a stand-in for the GPU that copies when a test says so."""

import ctypes
import sys
from array import array
from dataclasses import dataclass, field

import msgspec
import pytest

from splitserve.errors import (
    BugError,
    ConfigError,
    ProtocolMismatch,
    TransferFailed,
    UnavailableError,
)
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import PeerId
from splitserve.transfer.connectors.cuda_ipc import CudaIpcConnector
from splitserve.transfer.plan import Span, spans

LAYOUT = KVLayout("bfloat16", 3, 2, 8, 4, 10, 2)
TARGET_LAYOUT = KVLayout("bfloat16", 3, 2, 8, 4, 13, 2)
BLOCK = LAYOUT.block_bytes
SPANS = [Span(7 * BLOCK, 2 * BLOCK, 2 * BLOCK), Span(0, 12 * BLOCK, BLOCK)]


@dataclass
class Copy:
    """A copy that the stand-in has not made yet. Also its mark."""

    gpu: "Gpu"
    pairs: list[int]
    piece: int
    source: int
    target: int
    made: bool = False

    def ended(self) -> bool:
        return self.made

    def wait(self) -> None:
        while not self.made:
            self.gpu.make_one()


@dataclass
class Copier:
    gpu: "Gpu"
    pairs: list[int]
    piece: int

    def copy(self, source: int, target: int) -> Copy:
        copy = Copy(self.gpu, self.pairs, self.piece, source, target)
        self.gpu.queue.append(copy)
        return copy


@dataclass
class Gpu:
    """``mapped`` counts the open mappings by address; handles are addresses."""

    block_bytes: int = 0
    index: int = -1
    uuid: str = "GPU-1"
    queue: list[Copy] = field(default_factory=list)
    mapped: dict[int, int] = field(default_factory=dict)
    map_error: str = ""
    unmap_error: str = ""

    def open(self, index: int, block_bytes: int) -> "Gpu":
        self.index, self.block_bytes = index, block_bytes
        return self

    def export(self, address: int, nbytes: int) -> bytes:
        return f"{address} {nbytes}".encode()

    def map(self, handle: bytes, uuid: str) -> int:
        if self.map_error:
            raise TransferFailed(f"{uuid}: {self.map_error}")
        address = int(handle.split()[0])
        self.mapped[address] = self.mapped.get(address, 0) + 1
        return address

    def unmap(self, address: int) -> None:
        self.mapped[address] -= 1
        if self.unmap_error:
            raise TransferFailed(self.unmap_error)

    def copier(self, pairs: "array[int]", piece: int) -> Copier:
        assert pairs.itemsize == 4
        return Copier(self, pairs.tolist(), piece)

    def make_one(self) -> None:
        copy = self.queue.pop(0)
        for source, target in zip(copy.pairs[::2], copy.pairs[1::2], strict=True):
            ctypes.memmove(
                copy.target + target * copy.piece,
                copy.source + source * copy.piece,
                copy.piece,
            )
        copy.made = True


class Memory:
    """A pool that the stand-in takes for its own."""

    def __init__(self, layout: KVLayout, fill: int = 0) -> None:
        self.layout = layout
        self.bytes = bytearray((i * fill) % 251 for i in range(layout.pool_bytes))
        self._view = (ctypes.c_char * layout.pool_bytes).from_buffer(self.bytes)
        self.region = MemoryRegion(ctypes.addressof(self._view), layout.pool_bytes, "cuda:1")

    def block(self, layer: int, block: int) -> bytes:
        start = self.layout.offset(layer, block)
        return bytes(self.bytes[start : start + self.layout.block_bytes])


class Rig:
    """A writer on a stand-in GPU, and a target pool as another process would describe it."""

    def __init__(self) -> None:
        self.gpu = Gpu()
        self.source = Memory(LAYOUT, fill=7)
        self.target = Memory(TARGET_LAYOUT)
        self.writer = CudaIpcConnector(self.gpu.open)
        self.writer.open(self.source.region, LAYOUT)
        reader = CudaIpcConnector(Gpu().open)
        reader.open(self.target.region, TARGET_LAYOUT)
        self.description = foreign(reader.describe())

    def connect(self) -> PeerId:
        return self.writer.connect(self.description)


def foreign(description: bytes, **changes: object) -> bytes:
    """The same pool as one of another process."""
    told = msgspec.msgpack.decode(description)
    return msgspec.msgpack.encode(told | {"pid": told["pid"] + 1} | changes)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_pools_own_gpu_does_the_copying(rig: Rig) -> None:
    assert (rig.gpu.index, rig.gpu.block_bytes) == (1, LAYOUT.block_bytes)


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps:0"])
def test_a_pool_that_is_on_no_known_gpu_is_refused_with_a_cure(rig: Rig, device: str) -> None:
    region = MemoryRegion(4096, LAYOUT.pool_bytes, device)
    with pytest.raises(ConfigError, match=f"{device}: choose connector shm"):
        CudaIpcConnector(rig.gpu.open).open(region, LAYOUT)


def test_a_pool_smaller_than_its_layout_is_refused(rig: Rig) -> None:
    region = MemoryRegion(4096, LAYOUT.pool_bytes - 1, "cuda:0")
    with pytest.raises(BugError, match="bytes"):
        CudaIpcConnector(rig.gpu.open).open(region, LAYOUT)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "splitserve.transfer.cuda.copies", None)
    with pytest.raises(UnavailableError, match="triton"):
        CudaIpcConnector().open(MemoryRegion(4096, LAYOUT.pool_bytes, "cuda:0"), LAYOUT)


@pytest.mark.parametrize("layer", range(LAYOUT.num_layers))
def test_a_write_moves_the_layers_blocks_and_ends_when_the_gpu_is_done(
    rig: Rig, layer: int
) -> None:
    transfer = rig.writer.writer(rig.connect(), SPANS).write(layer)
    assert rig.writer.poll() == []
    rig.gpu.make_one()
    (event,) = rig.writer.poll()
    assert (event.transfer, event.state) == (transfer, "done")
    assert event.nbytes == 3 * LAYOUT.block_bytes
    for source, target in ((7, 2), (8, 3), (0, 12)):
        assert rig.target.block(layer, target) == rig.source.block(layer, source)
    assert sum(map(bool, rig.target.bytes)) == sum(
        sum(map(bool, rig.source.block(layer, block))) for block in (7, 8, 0)
    )


def test_equal_layouts_are_copied_in_whole_blocks(rig: Rig) -> None:
    rig.writer.writer(rig.connect(), SPANS).write(1)
    (copy,) = rig.gpu.queue
    assert copy.piece == BLOCK
    assert copy.pairs == [7, 2, 8, 3, 0, 12]


def test_a_read_brings_the_peers_bytes(rig: Rig) -> None:
    rig.target.bytes[:] = bytes(i % 97 for i in range(TARGET_LAYOUT.pool_bytes))
    before = bytes(rig.source.bytes)
    back = [Span(12 * BLOCK, 3 * BLOCK, BLOCK)]
    transfer = rig.writer.reader(rig.connect(), back).read(2)
    assert rig.writer.poll() == []
    rig.gpu.make_one()
    (event,) = rig.writer.poll()
    assert (event.transfer, event.state, event.nbytes) == (transfer, "done", BLOCK)
    assert rig.source.block(2, 3) == rig.target.block(2, 12)
    start = LAYOUT.offset(2, 3)
    assert bytes(rig.source.bytes[:start]) == before[:start]
    assert bytes(rig.source.bytes[start + BLOCK :]) == before[start + BLOCK :]


def test_other_block_sizes_and_heads_are_copied_in_smaller_pieces(rig: Rig) -> None:
    told = msgspec.to_builtins(TARGET_LAYOUT)
    told |= {"block_size": 8, "num_blocks": 6, "num_kv_heads": 1, "total_kv_heads": 2}
    peer = rig.writer.connect(foreign(rig.description, layout=told))
    ours, theirs = rig.writer.layouts(peer)
    wanted = spans(ours, theirs, range(8), [3, 5], [4])
    rig.writer.writer(peer, wanted).write(1)
    (copy,) = rig.gpu.queue
    assert copy.piece == 4 * 8 * 2  # four slots of one head
    rig.gpu.make_one()
    for span in wanted:
        read = LAYOUT.layer_bytes + span.source
        write = theirs.layer_bytes + span.target
        arrived = rig.target.bytes[write : write + span.nbytes]
        assert arrived == rig.source.bytes[read : read + span.nbytes]


def test_ends_are_told_in_order_and_once(rig: Rig) -> None:
    writer = rig.writer.writer(rig.connect(), SPANS)
    transfers = [writer.write(layer) for layer in range(3)]
    rig.gpu.make_one()
    rig.gpu.make_one()
    assert [event.transfer for event in rig.writer.poll()] == transfers[:2]
    assert rig.writer.poll() == []
    rig.gpu.make_one()
    assert [event.transfer for event in rig.writer.poll()] == transfers[2:]


def test_disconnect_waits_for_the_peers_writes_before_it_unmaps(rig: Rig) -> None:
    gone, stays = rig.connect(), rig.connect()
    writer, other = rig.writer.writer(gone, SPANS), rig.writer.writer(stays, SPANS)
    transfers = [writer.write(0), other.write(1), writer.write(2), other.write(0)]
    address = rig.target.region.address
    assert rig.gpu.mapped == {address: 2}
    rig.writer.disconnect(gone)
    assert len(rig.gpu.queue) == 1  # the other peer's last one need not be waited for
    assert rig.gpu.mapped == {address: 1}
    assert [event.transfer for event in rig.writer.poll()] == transfers[:3]


def test_nothing_is_started_for_a_peer_that_is_gone(rig: Rig) -> None:
    peer = rig.connect()
    writer = rig.writer.writer(peer, SPANS)
    rig.writer.disconnect(peer)
    transfers = [writer.write(0), rig.writer.writer(peer, SPANS).write(1)]
    events = rig.writer.poll()
    assert [(event.transfer, event.state) for event in events] == [
        (transfer, "failed") for transfer in transfers
    ]
    assert rig.gpu.queue == []


def test_a_pool_that_cannot_be_unmapped_does_not_stop_the_worker(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.gpu.unmap_error = "cudaErrorInvalidValue"
    rig.writer.disconnect(rig.connect())
    assert "cudaErrorInvalidValue" in caplog.text


def test_close_unmaps_every_peer_once(rig: Rig) -> None:
    rig.connect()
    rig.connect()
    rig.writer.close()
    rig.writer.close()
    assert rig.gpu.mapped == {rig.target.region.address: 0}


def test_a_pool_of_the_same_process_is_refused(rig: Rig) -> None:
    with pytest.raises(TransferFailed, match="between processes"):
        rig.writer.connect(rig.writer.describe())
    assert rig.gpu.mapped == {}


def test_what_is_no_description_is_refused(rig: Rig) -> None:
    with pytest.raises(ProtocolMismatch, match="cuda_ipc"):
        rig.writer.connect(b"\x93\x01\x02\x03")


def test_a_pool_of_another_shape_is_refused_before_it_is_mapped(rig: Rig) -> None:
    layout = msgspec.to_builtins(TARGET_LAYOUT) | {"head_dim": 16}
    with pytest.raises(ProtocolMismatch, match="head_dim"):
        rig.writer.connect(foreign(rig.description, layout=layout))
    assert rig.gpu.mapped == {}


def test_a_pool_that_cannot_be_mapped_is_no_peer(rig: Rig) -> None:
    rig.gpu.map_error = "not visible"
    with pytest.raises(TransferFailed, match="GPU-1: not visible"):
        rig.connect()
