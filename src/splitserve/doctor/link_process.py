"""The two processes between which a path is measured: one gives, one takes.

Each has a pool of its own and opens the connector over it as a worker does. Blocks lie scattered in
both pools, as in pools that have served for a while. What is said goes over a pipe to the process
that started both.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Final, Literal

import msgspec

from splitserve.bench.pool import BarePool, Pool
from splitserve.bench.quantile import quantile
from splitserve.doctor.places import End
from splitserve.errors import SplitserveError, TransferFailed
from splitserve.loading import load
from splitserve.protocol.memory import KVLayout
from splitserve.transfer.base import Connector, PeerId
from splitserve.transfer.plan import Span, spans
from splitserve.transfer.registry import create_connector

LAYOUT: Final = KVLayout(
    dtype="bfloat16",
    num_layers=8,
    num_kv_heads=8,
    head_dim=128,
    block_size=16,
    num_blocks=128,
    itemsize=2,
)
"""64 MiB, in blocks of 64 KiB."""

_COUNT: Final = LAYOUT.num_blocks // 2
_NUMBERS: Final = random.Random(1).sample(range(LAYOUT.num_blocks), LAYOUT.num_blocks)
SOURCES: Final = tuple(_NUMBERS[:_COUNT])
TARGETS: Final = tuple(_NUMBERS[_COUNT:])
PROMPT_BYTES: Final = _COUNT * LAYOUT.block_bytes * LAYOUT.num_layers

_LEAST_TIMES: Final = 3
_PAUSE_S: Final = 5e-5
"""Between looks at a connector with threads of its own, which need the interpreter and a core."""


class Opened(msgspec.Struct, frozen=True, tag=True):
    """What the taking side's connector tells of its pool."""

    description: bytes


class Measured(msgspec.Struct, frozen=True, tag=True):
    """As in ``findings.Link``. ``digest`` is of the blocks that were sent."""

    gb_per_s: float
    latency_ms: float
    first_ms: float
    way: str
    digest: bytes


class Failed(msgspec.Struct, frozen=True, tag=True):
    """``state`` is as in ``findings.Link``."""

    why: str
    state: Literal["missing", "failed", "wrong"]


Said = Opened | Measured | Failed


def take(path: str, end: End, pipe: Connection) -> None:
    """Says Opened; asked for it, the digest of what has arrived."""
    with _heard(pipe):
        settle(end)
        with _opened(path, end) as (pool, connector):
            _say(pipe, Opened(connector.describe()))
            pipe.recv_bytes()
            pipe.send_bytes(pool.digest(TARGETS))
            pipe.recv_bytes()


def give(path: str, end: End, seconds: float, pipe: Connection) -> None:
    """Told the taking side's description, says Measured, of about ``seconds``."""
    with _heard(pipe):
        settle(end)
        with _opened(path, end) as (pool, connector):
            pool.fill()
            _say(pipe, _measured(connector, pool, seconds, pipe.recv_bytes()))
            pipe.recv_bytes()


def copy_within(source: End, target: End, seconds: float, pipe: Connection) -> None:
    """Says Measured, of plain copies by one process."""
    with _heard(pipe):
        settle(source)
        pool = _pool(source, target)
        try:
            times = _repeated(lambda: pool.plain_copy_s(PROMPT_BYTES), seconds)
        finally:
            pool.close()
        _say(pipe, Measured(_gb_per_s(PROMPT_BYTES, times), 0.0, 0.0, "", b""))
        pipe.recv_bytes()


def settle(end: End) -> None:
    """What a library prints must not get between the lines of the report; Ctrl-C is for the process
    that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    if end.cores:
        os.sched_setaffinity(0, end.cores)


def _measured(connector: Connector, pool: Pool, seconds: float, description: bytes) -> Measured:
    layout = pool.layout
    start = time.perf_counter()
    peer = connector.connect(description)
    # The one block is the first of the prompt's, so that its digest stays right.
    block = _spans(layout, SOURCES[:1], TARGETS[:1])
    _moved_s(connector, peer, block, layers=1)
    first_s = time.perf_counter() - start
    whole = _spans(layout, SOURCES, TARGETS)
    every = layout.num_layers
    times = _repeated(lambda: _moved_s(connector, peer, whole, every), seconds)
    rate = _gb_per_s(PROMPT_BYTES, times)
    short = _repeated(lambda: _moved_s(connector, peer, block, layers=1), seconds / 4)
    way, digest = connector.route(peer).way, pool.digest(SOURCES)
    return Measured(rate, quantile(short, 0.5) * 1e3, first_s * 1e3, way, digest)


def _spans(layout: KVLayout, sources: Sequence[int], targets: Sequence[int]) -> list[Span]:
    return spans(layout, layout, range(len(sources) * layout.block_size), sources, targets)


def _moved_s(connector: Connector, peer: PeerId, wanted: Sequence[Span], layers: int) -> float:
    """Seconds until ``wanted`` of so many layers are in place. Raises TransferFailed."""
    start = time.perf_counter()
    writer = connector.writer(peer, wanted)
    for layer in range(layers):
        writer.write(layer)
    ended = 0
    while ended < layers:
        events = connector.poll()
        for event in events:
            if event.state == "failed":
                raise TransferFailed(event.error)
        ended += len(events)
        if not events:
            time.sleep(_PAUSE_S)
    return time.perf_counter() - start


def _repeated(once: Callable[[], float], seconds: float) -> list[float]:
    """What ``once`` gives, for so long and a few times at least, after a first one."""
    once()
    end, times = time.perf_counter() + seconds, list[float]()
    while len(times) < _LEAST_TIMES or time.perf_counter() < end:
        times.append(once())
    return times


def _gb_per_s(nbytes: int, times: Sequence[float]) -> float:
    return nbytes / quantile(times, 0.5) / 1e9


@contextmanager
def _opened(path: str, end: End) -> Iterator[tuple[Pool, Connector]]:
    pool = _pool(end, end)
    try:
        connector = create_connector(path)
        try:
            connector.open(pool.region, LAYOUT)
            yield pool, connector
        finally:
            connector.close()
    finally:
        pool.close()


def _pool(end: End, copy_to: End) -> Pool:
    """Raises ImportError where torch or CUDA's package is not there."""
    if end.device == "cpu":
        return BarePool(LAYOUT)
    index, other = (int(place.device.removeprefix("cuda:")) for place in (end, copy_to))
    made: Pool = load("splitserve.bench.device_pool:DevicePool")(LAYOUT, index, other)
    return made


@contextmanager
def _heard(pipe: Connection) -> Iterator[None]:
    """Errors of the block are said. An end of the pipe ends the block: nobody asks any more."""
    try:
        yield
    except (EOFError, ConnectionError):
        return
    except (SplitserveError, ImportError) as error:
        _say(pipe, Failed(str(error), "missing" if _is_missing(error) else "failed"))


def _is_missing(error: Exception) -> bool:
    """Whether a package is not there: then the message says how to get it."""
    return isinstance(error, ImportError) or "pip install" in str(error)


def _say(pipe: Connection, said: Said) -> None:
    with suppress(ConnectionError):
        pipe.send_bytes(msgspec.msgpack.encode(said))
