"""How fast a connector moves one prompt's KV into another process, beside a plain copy.

The pushing side writes layer by layer, as a prefill does. Blocks lie in one run on both sides
(``packed``) or scattered on both (``scattered``), the worst case for the number of copies. What
arrived is compared with what was sent.
"""

import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final, Literal

import msgspec

from splitserve.bench.loopback import PlainSocket, plain_socket
from splitserve.bench.pool import BarePool, Pool
from splitserve.bench.quantile import quantile
from splitserve.errors import TransferFailed, UnavailableError
from splitserve.loading import load
from splitserve.protocol.memory import KVLayout
from splitserve.transfer.base import Connector, PeerId
from splitserve.transfer.plan import Span, spans
from splitserve.transfer.registry import create_connector

Device = Literal["cpu", "cuda"]

_POLL_S: Final = 5e-4
"""Between looks at a connector with threads of its own, which need the interpreter and a core."""


@dataclass(frozen=True, slots=True)
class HandoffReading:
    """Medians over the repeats. ``of_memcpy`` is the connector's rate over memcpy's, same bytes.

    On GPUs memcpy is torch's copy from one device to the other. ``copies`` are spans of bytes
    that are consecutive on both sides, over all layers. ``of_socket`` is the rate over that of a
    plain socket over loopback, measured in turn; both are 0 but for connector tcp.
    """

    connector: str
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
    socket_gb_per_s: float
    of_socket: float


@dataclass(frozen=True, slots=True)
class _Placement:
    """Which blocks go where."""

    name: str
    sources: Sequence[int]
    targets: Sequence[int]

    def spans(self, layout: KVLayout) -> list[Span]:
        tokens = range(len(self.sources) * layout.block_size)
        return spans(layout, layout, tokens, self.sources, self.targets)


@dataclass(frozen=True, slots=True)
class _Receiver:
    """The other process. ``description`` is what its connector tells of its pool."""

    pipe: Connection
    device: str
    description: bytes

    def digest(self, blocks: Sequence[int]) -> bytes:
        self.pipe.send_bytes(msgspec.msgpack.encode(list(blocks)))
        return bytes(self.pipe.recv_bytes())


def measure_handoff(
    connector: str, layout: KVLayout, tokens: int, repeats: int, device: Device = "cpu"
) -> Iterator[HandoffReading]:
    """``layout`` must hold ``tokens`` at least twice. On ``cuda`` from the first GPU to the second,
    or within the first where there is only one.

    Raises UnavailableError when the receiving process fails or there is no such device, and
    TransferFailed when other bytes arrived than were sent.
    """
    count = -(-tokens // layout.block_size)
    kv_bytes = count * layout.block_bytes * layout.num_layers
    source = _make_pool(layout, device, "source")
    source.fill()
    writer = create_connector(connector)
    try:
        writer.open(source.region, layout)
        with _receiver(connector, layout, device) as receiver, _plain(connector, kv_bytes) as plain:
            peer = writer.connect(receiver.description)
            for placement in _placements(count, layout.num_blocks):
                write_s, copy_s, plain_s = _measure(writer, peer, source, placement, repeats, plain)
                if receiver.digest(placement.targets) != source.digest(placement.sources):
                    raise TransferFailed(f"{connector}: other bytes arrived than were sent")
                yield HandoffReading(
                    connector=connector,
                    source_device=source.device,
                    target_device=receiver.device,
                    blocks=placement.name,
                    tokens=tokens,
                    kv_bytes=kv_bytes,
                    copies=len(placement.spans(layout)) * layout.num_layers,
                    write_ms=write_s * 1e3,
                    gb_per_s=kv_bytes / write_s / 1e9,
                    memcpy_gb_per_s=kv_bytes / copy_s / 1e9,
                    of_memcpy=copy_s / write_s,
                    socket_gb_per_s=kv_bytes / plain_s / 1e9 if plain_s else 0.0,
                    of_socket=plain_s / write_s,
                )
    finally:
        writer.close()
        source.close()


def _make_pool(layout: KVLayout, device: Device, side: Literal["source", "target"]) -> Pool:
    if device == "cpu":
        return BarePool(layout)
    try:
        source, target = load("splitserve.bench.device_pool:places")()
    except ImportError as error:
        raise UnavailableError(f"torch for CUDA with cuda-bindings is needed: {error}") from error
    index = source if side == "source" else target
    pool: Pool = load("splitserve.bench.device_pool:DevicePool")(layout, index, target)
    return pool


def _placements(count: int, num_blocks: int) -> list[_Placement]:
    shuffled = random.Random(count)
    scattered = list(range(num_blocks))
    shuffled.shuffle(scattered)
    return [
        _Placement("packed", range(count), range(num_blocks - count, num_blocks)),
        _Placement("scattered", scattered[:count], scattered[-count:]),
    ]


def _plain(connector: str, nbytes: int) -> AbstractContextManager[PlainSocket | None]:
    return plain_socket(nbytes) if connector == "tcp" else nullcontext()


def _measure(
    writer: Connector,
    peer: PeerId,
    source: Pool,
    placement: _Placement,
    repeats: int,
    plain: PlainSocket | None,
) -> tuple[float, float, float]:
    """Seconds of a handoff, of a plain copy and of a plain socket (0 without one), medians over the
    repeats after a first one."""
    layout = source.layout
    wanted = placement.spans(layout)
    nbytes = len(placement.sources) * layout.block_bytes * layout.num_layers
    writes, copies, sockets = [], [], []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        layers = writer.writer(peer, wanted)
        for layer in range(layout.num_layers):
            layers.write(layer)
        _drain(writer, layout.num_layers, 0.0 if plain is None else _POLL_S)
        writes.append(time.perf_counter() - start)
        copies.append(source.plain_copy_s(nbytes))
        sockets.append(0.0 if plain is None else plain.send_s())
    return quantile(writes[1:], 0.5), quantile(copies[1:], 0.5), quantile(sockets[1:], 0.5)


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
    pool = _make_pool(layout, device, "target")
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
