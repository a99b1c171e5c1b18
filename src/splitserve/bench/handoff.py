"""How fast a connector moves one prompt's KV into another process, beside plain copies.

The pushing side writes layer by layer, as a prefill does. Blocks lie in one run on both sides
(``packed``), as pools hand them out after much use (``used``), or anywhere (``scattered``), the
worst case for the number of copies. What arrived is compared with what was sent.
"""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

import msgspec

from splitserve.bench.placements import Placement, placements
from splitserve.bench.plain import plain_move
from splitserve.bench.plain_library import Move
from splitserve.bench.pool import Device, Pool, make_pool
from splitserve.bench.quantile import quantile
from splitserve.errors import TransferFailed, UnavailableError
from splitserve.protocol.memory import KVLayout
from splitserve.transfer.base import Connector, PeerId
from splitserve.transfer.options import NetworkOptions
from splitserve.transfer.registry import create_connector

_POLL_S: Final = 5e-4
"""Between looks at a connector with threads of its own, which need the interpreter and a core."""


@dataclass(frozen=True, slots=True)
class HandoffReading:
    """Medians over the repeats. Rates count the same bytes. ``checksums`` None: the connector has
    none.

    ``copies`` are spans of bytes that are consecutive on both sides, over all layers. memcpy is one
    copy of all bytes, on GPUs torch's from one device to the other. The plain rate is that of what
    ``bench/plain`` says; it is 0 for a connector that has none.

    ``of_memcpy`` and ``of_plain`` are the connector's rate over theirs in the same repeat, where
    they were measured in turn: median, smallest and largest.
    """

    connector: str
    checksums: bool | None
    source_device: str
    target_device: str
    blocks: str
    tokens: int
    kv_bytes: int
    copies: int
    write_ms: float
    gb_per_s: float
    memcpy_gb_per_s: float
    of_memcpy: float
    of_memcpy_min: float
    of_memcpy_max: float
    plain_gb_per_s: float
    of_plain: float
    of_plain_min: float
    of_plain_max: float


@dataclass(frozen=True, slots=True)
class _Receiver:
    """The other process. ``description`` is what its connector tells of its pool."""

    pipe: Connection
    device: str
    description: bytes

    def digest(self, blocks: Sequence[int]) -> bytes:
        self.pipe.send_bytes(msgspec.msgpack.encode(list(blocks)))
        return bytes(self.pipe.recv_bytes())


@dataclass(frozen=True, slots=True)
class _Repeat:
    """Seconds. ``plain_s`` 0: there is nothing plain."""

    write_s: float
    copy_s: float
    plain_s: float


def measure_handoff(
    connector: str, layout: KVLayout, tokens: int, repeats: int, device: Device = "cpu"
) -> Iterator[HandoffReading]:
    """``layout`` must hold ``tokens`` at least twice. On ``cuda`` from the first GPU to the second,
    or within the first where there is only one. Connector tcp is read with and without checksums.

    Raises UnavailableError when a process fails or there is no such device, and TransferFailed when
    other bytes arrived than were sent.
    """
    for checksums in (True, False) if connector == "tcp" else (None,):
        yield from _measured(connector, checksums, layout, tokens, repeats, device)


def _measured(
    connector: str,
    checksums: bool | None,
    layout: KVLayout,
    tokens: int,
    repeats: int,
    device: Device,
) -> Iterator[HandoffReading]:
    count = -(-tokens // layout.block_size)
    kv_bytes = count * layout.block_bytes * layout.num_layers
    source = make_pool(layout, device, "source")
    source.fill()
    writer = _connector(connector, checksums)
    try:
        writer.open(source.region, layout)
        with (
            _receiver(connector, layout, device) as receiver,
            plain_move(connector, source, device, kv_bytes) as prepare,
        ):
            peer = writer.connect(receiver.description)
            for placement in placements(count, layout.num_blocks):
                plain = None if prepare is None else prepare(placement.spans(layout))
                times = _measure(writer, peer, source, placement, repeats, plain)
                if receiver.digest(placement.targets) != source.digest(placement.sources):
                    raise TransferFailed(f"{connector}: other bytes arrived than were sent")
                yield HandoffReading(
                    connector=connector,
                    checksums=checksums,
                    source_device=source.device,
                    target_device=receiver.device,
                    blocks=placement.name,
                    tokens=tokens,
                    kv_bytes=kv_bytes,
                    copies=len(placement.spans(layout)) * layout.num_layers,
                    **_rates(kv_bytes, times),
                )
    finally:
        writer.close()
        source.close()


def _connector(name: str, checksums: bool | None) -> Connector:
    return create_connector(
        name, None if checksums is None else NetworkOptions(checksums=checksums)
    )


def _rates(nbytes: int, times: Sequence[_Repeat]) -> dict[str, float]:
    """By the names of HandoffReading."""
    write_s = quantile([one.write_s for one in times], 0.5)
    copy_s = quantile([one.copy_s for one in times], 0.5)
    plain_s = quantile([one.plain_s for one in times], 0.5)
    of_memcpy = [one.copy_s / one.write_s for one in times]
    of_plain = [one.plain_s / one.write_s for one in times]
    return {
        "write_ms": write_s * 1e3,
        "gb_per_s": nbytes / write_s / 1e9,
        "memcpy_gb_per_s": nbytes / copy_s / 1e9,
        "of_memcpy": quantile(of_memcpy, 0.5),
        "of_memcpy_min": min(of_memcpy),
        "of_memcpy_max": max(of_memcpy),
        "plain_gb_per_s": nbytes / plain_s / 1e9 if plain_s else 0.0,
        "of_plain": quantile(of_plain, 0.5),
        "of_plain_min": min(of_plain),
        "of_plain_max": max(of_plain),
    }


def _measure(
    writer: Connector,
    peer: PeerId,
    source: Pool,
    placement: Placement,
    repeats: int,
    plain: Move | None,
) -> list[_Repeat]:
    """All in turn, after a first time that does not count."""
    layout = source.layout
    wanted = placement.spans(layout)
    nbytes = len(placement.sources) * layout.block_bytes * layout.num_layers
    times: list[_Repeat] = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        layers = writer.writer(peer, wanted)
        for layer in range(layout.num_layers):
            layers.write(layer)
        _drain(writer, layout.num_layers, 0.0 if plain is None else _POLL_S)
        write_s = time.perf_counter() - start
        copy_s = source.plain_copy_s(nbytes)
        times.append(_Repeat(write_s, copy_s, 0.0 if plain is None else plain()))
    return times[1:]


def _drain(writer: Connector, count: int, pause_s: float) -> None:
    ended = 0
    while ended < count:
        events = writer.poll()
        if not events and pause_s:
            time.sleep(pause_s)
        for event in events:
            if event.state == "failed":
                raise UnavailableError(f"a write failed: {event.error}")
            ended += 1


@contextmanager
def _receiver(connector: str, layout: KVLayout, device: Device) -> Iterator[_Receiver]:
    """A process with a pool of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_receive, args=(connector, layout, device, theirs))
    process.start()
    theirs.close()
    try:
        name, description = msgspec.msgpack.decode(ours.recv_bytes(), type=tuple[str, bytes])
        yield _Receiver(ours, name, description)
    except EOFError as error:
        raise UnavailableError("the receiving process failed; see its message above") from error
    finally:
        ours.close()
        process.join()


def _receive(connector: str, layout: KVLayout, device: Device, pipe: Connection) -> None:
    pool = make_pool(layout, device, "target")
    reader = create_connector(connector)
    reader.open(pool.region, layout)
    pipe.send_bytes(msgspec.msgpack.encode((pool.device, reader.describe())))
    try:
        while True:  # until the other side closes
            blocks = msgspec.msgpack.decode(pipe.recv_bytes(), type=list[int])
            pipe.send_bytes(pool.digest(blocks))
    except EOFError:
        reader.close()
        pool.close()
