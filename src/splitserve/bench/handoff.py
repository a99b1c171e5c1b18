"""How fast a connector moves one prompt's KV into another process, beside a plain memcpy.

The pushing side writes layer by layer, as a prefill does. Blocks lie in one run on both sides
(``packed``) or scattered on both (``scattered``), the worst case for the number of copies.
"""

import ctypes
import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from splitserve.bench.pool import BarePool
from splitserve.bench.quantile import quantile
from splitserve.errors import UnavailableError
from splitserve.protocol.memory import KVLayout
from splitserve.transfer.base import Connector, PeerId
from splitserve.transfer.plan import block_runs, layer_copies
from splitserve.transfer.registry import create_connector


@dataclass(frozen=True, slots=True)
class HandoffReading:
    """Medians over the repeats. ``of_memcpy`` is the connector's rate over memcpy's, same bytes."""

    connector: str
    blocks: str
    tokens: int
    kv_bytes: int
    copies: int
    write_ms: float
    gb_per_s: float
    memcpy_gb_per_s: float
    of_memcpy: float


def measure_handoff(
    connector: str, layout: KVLayout, tokens: int, repeats: int
) -> list[HandoffReading]:
    """``layout`` must hold ``tokens`` at least twice. Raises UnavailableError when the receiving
    process fails."""
    count = -(-tokens // layout.block_size)
    source = BarePool(layout)
    writer = create_connector(connector)
    writer.open(source.region, layout)
    try:
        with _receiver(connector, layout) as description:
            peer = writer.connect(description)
            return [
                _measure(writer, peer, source, name, sources, targets, repeats, connector, tokens)
                for name, sources, targets in _placements(count, layout.num_blocks)
            ]
    finally:
        writer.close()
        source.close()


def _placements(count: int, num_blocks: int) -> list[tuple[str, list[int], list[int]]]:
    shuffled = random.Random(count)
    scattered = list(range(num_blocks))
    shuffled.shuffle(scattered)
    return [
        ("packed", list(range(count)), list(range(num_blocks - count, num_blocks))),
        ("scattered", scattered[:count], scattered[-count:]),
    ]


def _measure(
    writer: Connector,
    peer: PeerId,
    source: BarePool,
    name: str,
    sources: Sequence[int],
    targets: Sequence[int],
    repeats: int,
    connector: str,
    tokens: int,
) -> HandoffReading:
    layout = source.layout
    runs = block_runs(sources, targets)
    kv_bytes = len(sources) * layout.block_bytes * layout.num_layers
    writes, copies = [], []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        for layer in range(layout.num_layers):
            writer.write(peer, layer_copies(runs, layout, writer.layout(peer), layer))
        _drain(writer, layout.num_layers)
        writes.append(time.perf_counter() - start)
        copies.append(_memcpy(source, kv_bytes))
    write_s, copy_s = quantile(writes[1:], 0.5), quantile(copies[1:], 0.5)
    return HandoffReading(
        connector=connector,
        blocks=name,
        tokens=tokens,
        kv_bytes=kv_bytes,
        copies=len(runs) * layout.num_layers,
        write_ms=write_s * 1e3,
        gb_per_s=kv_bytes / write_s / 1e9,
        memcpy_gb_per_s=kv_bytes / copy_s / 1e9,
        of_memcpy=copy_s / write_s,
    )


def _drain(writer: Connector, count: int) -> None:
    ended = 0
    while ended < count:
        for event in writer.poll():
            if event.state == "failed":
                raise UnavailableError(f"a write failed: {event.error}")
            ended += 1


def _memcpy(source: BarePool, nbytes: int) -> float:
    """Within one pool, from its start to its end; seconds."""
    target = source.region.address + source.region.nbytes - nbytes
    start = time.perf_counter()
    ctypes.memmove(target, source.region.address, nbytes)
    return time.perf_counter() - start


@contextmanager
def _receiver(connector: str, layout: KVLayout) -> Iterator[bytes]:
    """A process with a pool of its own; gives what its connector tells of it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_receive, args=(connector, layout, theirs))
    process.start()
    theirs.close()
    try:
        yield bytes(ours.recv_bytes())
    except EOFError as error:
        raise UnavailableError("the receiving process failed; see its message above") from error
    finally:
        ours.close()
        process.join()


def _receive(connector: str, layout: KVLayout, pipe: Connection) -> None:
    pool = BarePool(layout)
    reader = create_connector(connector)
    reader.open(pool.region, layout)
    pipe.send_bytes(reader.describe())
    try:
        pipe.recv_bytes()  # until the other side closes
    except EOFError:
        reader.close()
        pool.close()
