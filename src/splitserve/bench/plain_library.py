"""How fast NIXL and Mooncake alone move the same bytes into another process: what their connectors
are measured against.

One agent in each of two processes, over pools that the connector's are like, and the same spans.
NIXL gets one list of all layers, which is prepared before, posted once and looked at until it is
done. Mooncake knows no such list: it is asked for one layer after another, by its call that waits.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec

from splitserve.bench.pool import Device, Pool, make_pool
from splitserve.errors import TransferFailed, UnavailableError
from splitserve.loading import load
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.mooncake.settings import Network, applied
from splitserve.transfer.options import NetworkOptions
from splitserve.transfer.plan import Span
from splitserve.transfer.posting.pairs import Pairs, Place

_HOST: Final = "127.0.0.1"

Move = Callable[[], float]
"""Moves what was prepared once more; gives the seconds until all of it is in place."""

Prepare = Callable[[Sequence[Span]], Move]
"""Of spans of every layer. What can be done before is done here, and is not timed."""


class _Other(msgspec.Struct, frozen=True):
    """The pool of the other process, and what its library tells peers."""

    address: int
    device: str
    told: bytes


@contextmanager
def plain_nixl(source: Pool, device: Device) -> Iterator[Prepare]:
    """Raises UnavailableError when the other process fails, ConfigError as connector nixl does."""
    with _process(_hold_nixl, source.layout, device) as other, ExitStack() as used:
        agent = _nixl_agent(source.region)
        used.callback(agent.close)
        name = agent.join(other.told)

        def prepare(spans: Sequence[Span]) -> Move:
            pairs = _pairs(source, other, spans)
            prepared = agent.prepare(name, "WRITE", pairs)
            # NIXL does not survive one that is dropped after its agent.
            used.callback(agent.drop, prepared)
            return _nixl_move(agent, prepared, range(pairs.num_layers * len(spans)))

        yield prepare


@contextmanager
def plain_mooncake(source: Pool) -> Iterator[Prepare]:
    """Raises UnavailableError when the other process fails."""
    with _process(_hold_mooncake, source.layout, "cpu") as other:
        engine = _mooncake_engine(source.region)
        name = other.told.decode()
        yield lambda spans: _mooncake_move(engine, name, _pairs(source, other, spans))
        engine.unregister_memory(source.region.address)


def _pairs(source: Pool, other: _Other, spans: Sequence[Span]) -> Pairs:
    layout, region = source.layout, source.region
    ours = Place(region.address, layout.layer_bytes, region.device)
    theirs = Place(other.address, layout.layer_bytes, other.device)
    return Pairs(spans, layout.num_layers, ours, theirs)


def _nixl_move(agent: Any, prepared: Any, rows: range) -> Move:
    def move() -> float:
        start = time.perf_counter()
        handle = agent.post(prepared, rows)
        while not agent.ended(handle):
            pass
        seconds = time.perf_counter() - start
        agent.release(handle)
        return seconds

    return move


def _mooncake_move(engine: Any, name: str, pairs: Pairs) -> Move:
    layers = [
        tuple(list(column) for column in zip(*map(pairs.at, pairs.of(layer)), strict=True))
        for layer in range(pairs.num_layers)
    ]

    def move() -> float:
        start = time.perf_counter()
        for sources, targets, sizes in layers:
            if engine.batch_transfer_sync_write(name, sources, targets, sizes):
                raise TransferFailed("Mooncake alone could not write; its line on stderr says why")
        return time.perf_counter() - start

    return move


def _nixl_agent(region: MemoryRegion) -> Any:
    kind, _, number = region.device.partition(":")
    if kind == "cuda":
        load("splitserve.transfer.cuda.stored:StoredMarks")(int(number)).enter()
    return load("splitserve.transfer.nixl.agent:NixlAgent")(region)


def _mooncake_engine(region: MemoryRegion) -> Any:
    """One that listens. Set up as the connector's is."""
    with applied(os.environ, Network(_HOST, NetworkOptions().streams)):
        engine = load("mooncake.engine:TransferEngine")()
        failed = engine.initialize(_HOST, "P2PHANDSHAKE", "tcp", "")
    if failed or engine.register_memory(region.address, region.nbytes):
        raise UnavailableError("Mooncake alone could not start; its line on stderr says why")
    return engine


@contextmanager
def _process(
    hold: Callable[[KVLayout, Device, Connection], None], layout: KVLayout, device: Device
) -> Iterator[_Other]:
    """One that ``hold``s a pool with the library until its pipe closes."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(layout, device, theirs))
    process.start()
    theirs.close()
    try:
        other = msgspec.msgpack.decode(ours.recv_bytes(), type=_Other)
        yield other
    except EOFError as error:
        raise UnavailableError("the other process failed; see its message above") from error
    finally:
        ours.close()
        process.join()


def _hold_nixl(layout: KVLayout, device: Device, pipe: Connection) -> None:
    pool = make_pool(layout, device, "target")
    agent = _nixl_agent(pool.region)
    _hold(pool, agent.metadata(), pipe)
    agent.close()
    pool.close()


def _hold_mooncake(layout: KVLayout, device: Device, pipe: Connection) -> None:
    pool = make_pool(layout, device, "target")
    engine = _mooncake_engine(pool.region)
    _hold(pool, f"{_HOST}:{engine.get_rpc_port()}".encode(), pipe)
    engine.unregister_memory(pool.region.address)
    pool.close()


def _hold(pool: Pool, told: bytes, pipe: Connection) -> None:
    other = _Other(pool.region.address, pool.region.device, told)
    pipe.send_bytes(msgspec.msgpack.encode(other))
    try:
        pipe.recv_bytes()
    except EOFError:
        return
