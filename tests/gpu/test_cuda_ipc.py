"""Connector cuda_ipc on real GPUs: from the first into a child process's pool on the second, or
within the first where there is only one."""

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pytest

from splitserve.errors import ConfigError, ProtocolMismatch, TransferFailed
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import Connector, TransferEvent
from splitserve.transfer.plan import Span, spans
from splitserve.transfer.registry import create_connector

if TYPE_CHECKING:
    from device_pools import DeviceTarget

pytestmark = pytest.mark.gpu

WIDE = KVLayout("bfloat16", 4, 4, 128, 16, 64, 2)
"""Blocks of 32 KiB, as of a 7B model."""

ODD = KVLayout("bfloat16", 2, 1, 33, 1, 64, 2)
"""Blocks of 132 bytes: whole 4-byte words, but no 8-byte ones."""

NARROW = KVLayout("bfloat16", 4, 2, 128, 32, 40, 2, first_kv_head=1, total_kv_heads=4)
"""Half of WIDE's heads, in blocks of twice the tokens."""


@pytest.fixture(scope="module")
def target() -> "Iterator[DeviceTarget]":
    from device_pools import DeviceTarget

    target = DeviceTarget()
    yield target
    target.close()


class Source:
    """A pool of random bytes on the first GPU, and the connector over it."""

    def __init__(self, layout: KVLayout) -> None:
        from device_pools import DeviceSource

        self.layout = layout
        self.pool = DeviceSource(layout)
        self.pool.fill()
        self.connector = create_connector("cuda_ipc")
        self.connector.open(self.pool.region, layout)

    def close(self) -> None:
        self.connector.close()
        self.pool.close()


@pytest.fixture
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    source = Source(getattr(request, "param", WIDE))
    yield source
    source.close()


def drain(connector: Connector, count: int) -> list[TransferEvent]:
    events: list[TransferEvent] = []
    while len(events) < count:
        events += connector.poll()
    return events


def pairs(layout: KVLayout, sources: Sequence[int], targets: Sequence[int]) -> list[Span]:
    """Whole blocks between two pools of one layout."""
    return spans(layout, layout, range(len(sources) * layout.block_size), sources, targets)


def everything(layout: KVLayout) -> list[Span]:
    return [Span(0, 0, layout.layer_bytes)]


def copy_bytes(
    wanted: Sequence[Span], source: bytearray, start: int, target: bytearray, end: int
) -> None:
    """``wanted`` of the layers that begin at ``start`` and ``end``, on the host."""
    for span in wanted:
        read, write = start + span.source, end + span.target
        target[write : write + span.nbytes] = source[read : read + span.nbytes]


def scattered(layout: KVLayout, count: int) -> tuple[list[int], list[int]]:
    chosen = random.Random(1)
    return (
        chosen.sample(range(layout.num_blocks), count),
        chosen.sample(range(layout.num_blocks), count),
    )


@pytest.mark.parametrize("source", [WIDE, ODD], indirect=True, ids=["wide", "odd"])
def test_scattered_blocks_arrive_bit_equal_and_nothing_else_changes(
    source: Source, target: "DeviceTarget"
) -> None:
    layout = source.layout
    sources, targets = scattered(layout, 40)
    peer = source.connector.connect(target.new(layout))
    writer = source.connector.writer(peer, pairs(layout, sources, targets))
    transfers = [writer.write(layer) for layer in range(layout.num_layers)]
    events = drain(source.connector, layout.num_layers)
    assert [event.transfer for event in events] == transfers
    assert {(event.state, event.nbytes) for event in events} == {("done", 40 * layout.block_bytes)}
    sent, expected = source.pool.read(), bytearray(layout.pool_bytes)
    for layer in range(layout.num_layers):
        for block, place in zip(sources, targets, strict=True):
            start, end = layout.offset(layer, block), layout.offset(layer, place)
            expected[end : end + layout.block_bytes] = sent[start : start + layout.block_bytes]
    assert target.read() == bytes(expected)


def test_what_was_written_to_another_layout_is_what_is_read_back(
    source: Source, target: "DeviceTarget"
) -> None:
    """Half of the heads and blocks of another size, with a first and a last block in part."""
    peer = source.connector.connect(target.new(NARROW))
    ours, theirs = source.connector.layouts(peer)
    first, there, again = [5, 9, 2, 60], [31, 7, 8], [40, 41, 17, 3]
    tokens = range(3, 61)
    there_spans = spans(ours, theirs, tokens, first, there)
    back_spans = spans(theirs, ours, tokens, there, again)
    expected, held = bytearray(source.pool.read()), bytearray(NARROW.pool_bytes)
    writer = source.connector.writer(peer, there_spans)
    reader = source.connector.reader(peer, back_spans)
    for layer in range(WIDE.num_layers):
        writer.write(layer)
        reader.read(layer)
        start, end = layer * WIDE.layer_bytes, layer * NARROW.layer_bytes
        copy_bytes(there_spans, expected, start, held, end)
        copy_bytes(back_spans, held, end, expected, start)
    drain(source.connector, 2 * WIDE.num_layers)
    assert target.read() == bytes(held)
    assert source.pool.read() == bytes(expected)


def test_a_write_takes_what_the_engine_was_still_computing(
    source: Source, target: "DeviceTarget"
) -> None:
    """The KV is stored by a kernel that stands in a long queue when the write is started."""
    import torch

    device = source.pool.memory.device
    weights = torch.ones((4096, 4096), device=device)
    result = weights
    writer = source.connector.writer(source.connector.connect(target.new(WIDE)), everything(WIDE))
    source.pool.memory.fill_(1)
    torch.cuda.synchronize(device)
    for _ in range(200):
        result = torch.mm(weights, weights)
    source.pool.memory.fill_(77)
    for layer in range(WIDE.num_layers):
        writer.write(layer)
    drain(source.connector, WIDE.num_layers)
    assert target.read() == bytes([77]) * WIDE.pool_bytes
    assert result[0, 0].item() == 4096


def test_after_disconnect_all_that_was_started_has_arrived_and_the_rest_fails(
    source: Source, target: "DeviceTarget"
) -> None:
    peer = source.connector.connect(target.new(WIDE))
    writer = source.connector.writer(peer, everything(WIDE))
    for layer in range(WIDE.num_layers):
        writer.write(layer)
    source.connector.disconnect(peer)
    assert target.read() == source.pool.read()
    writer.write(0)
    states = [event.state for event in drain(source.connector, WIDE.num_layers + 1)]
    assert states.count("done") == WIDE.num_layers
    assert states.count("failed") == 1


def test_a_peer_can_be_connected_twice_at_once(source: Source, target: "DeviceTarget") -> None:
    description = target.new(WIDE)
    first, second = (source.connector.connect(description) for _ in range(2))
    source.connector.disconnect(first)
    writer = source.connector.writer(second, everything(WIDE))
    for layer in range(WIDE.num_layers):
        writer.write(layer)
    drain(source.connector, WIDE.num_layers)
    assert target.read() == source.pool.read()


def test_a_pool_of_this_process_is_refused(source: Source) -> None:
    with pytest.raises(TransferFailed, match="between processes"):
        source.connector.connect(source.connector.describe())


def test_a_pool_of_another_shape_is_refused(source: Source, target: "DeviceTarget") -> None:
    with pytest.raises(ProtocolMismatch, match="num_layers"):
        source.connector.connect(target.new(ODD))


def test_a_gpu_that_is_not_visible_is_refused_with_the_cure(
    source: Source, target: "DeviceTarget"
) -> None:
    told = msgspec.msgpack.decode(target.new(WIDE))
    told["gpu"] = "GPU-of-another-host"
    with pytest.raises(TransferFailed, match="CUDA_VISIBLE_DEVICES"):
        source.connector.connect(msgspec.msgpack.encode(told))


def test_a_handle_that_opens_nothing_is_refused_by_cudas_name(
    source: Source, target: "DeviceTarget"
) -> None:
    told = msgspec.msgpack.decode(target.new(WIDE))
    told["handle"] = bytes(64)
    with pytest.raises(TransferFailed, match="cudaError"):
        source.connector.connect(msgspec.msgpack.encode(told))


def test_part_of_an_allocation_is_refused(source: Source) -> None:
    region = source.pool.region
    inside = MemoryRegion(region.address + 512, ODD.pool_bytes, region.device)
    with pytest.raises(ConfigError, match="cudaMalloc of its own"):
        create_connector("cuda_ipc").open(inside, ODD)
