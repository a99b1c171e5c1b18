"""Whether the client keeps up with a load on this machine: the load, on a mock server in a process
of its own. A client that is late here would be late in a study, and be taken for a slow server.

Where one process does not keep up, several are tried, each against a mock server of its own."""

import asyncio
import multiprocessing
import os
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from math import ceil
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Final

import msgspec

from splitserve.clock import monotonic
from splitserve.errors import UnavailableError
from splitserve.lab.load.arrivals import poisson
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.corpus.synthetic import Shape, Vocabulary, synthetic
from splitserve.lab.load.driver import LEAD_S, Patience, run_open
from splitserve.lab.load.record import Outcome, RequestRecord
from splitserve.lab.load.request import Asking
from splitserve.lab.load.schedule import Due, at_offsets
from splitserve.lab.load.spread.crew import Crew
from splitserve.lab.load.spread.work import split, work_of
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.target import resolve
from splitserve.lab.mock.case import DONE, completion, event, script_of, total
from splitserve.lab.mock.script import Script
from splitserve.lab.mock.server import MockServer

CPU_LIMIT: Final = 0.7
"""Of one core: the client is one thread."""

_VOCABULARY: Final = 32_000


@dataclass(frozen=True, slots=True)
class CapacityLoad:
    """``rate`` requests per second for ``duration_s``, each of ``prompt_tokens`` in and
    ``max_tokens`` out at one event per ``gap_s``. Take twice a study's peak rate."""

    rate: float
    duration_s: float
    prompt_tokens: int
    max_tokens: int
    gap_s: float
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the client did. Lags are seconds between when a request was due and when it left;
    ``cpu`` is the share of one core that a process of the client took."""

    requests: int
    failed: int
    lag_p50_s: float
    lag_p99_s: float
    cpu: float
    processes: int = 1

    def within(self, lag_s: float) -> bool:
        """Nothing failed, and p99 of the lag and CPU are within the limits."""
        return not self.failed and self.lag_p99_s <= lag_s and self.cpu <= CPU_LIMIT


async def measure_capacity(load: CapacityLoad) -> Capacity:
    """Runs ``load``. Raises UnavailableError when the server's process does not start."""
    async with _server(_script(load.max_tokens, load.gap_s)) as url:
        started, cpu = monotonic(), time.process_time()
        records = await _drive(url, _schedule(load), Limits())
        cpu, wall = time.process_time() - cpu, monotonic() - started
    return _capacity_of(records, cpu / wall, 1)


async def measure_spread(load: CapacityLoad, processes: int) -> Capacity:
    """The same from ``processes`` load processes. Raises UnavailableError."""
    records: list[RequestRecord] = []
    async with AsyncExitStack() as stack:
        urls = [
            await stack.enter_async_context(_server(_script(load.max_tokens, load.gap_s)))
            for _ in range(processes)
        ]
        asked = work_of(
            (urls[0], {}),
            Asking("mock"),
            ("mock", "capacity"),
            Limits(),
            (Patience(), _schedule(load)),
        )
        parts = [
            msgspec.structs.replace(part, url=url)
            for part, url in zip(split(asked, processes), urls, strict=False)
        ]
        crew = await stack.enter_async_context(Crew(parts))
        started, before = monotonic(), _cpu_s(crew.pids)
        crew.begin()
        await crew.records(records.append)
        cpu, wall = _cpu_s(crew.pids) - before, monotonic() - started
    return _capacity_of(records, cpu / wall / len(parts), processes)


def _capacity_of(records: list[RequestRecord], cpu: float, processes: int) -> Capacity:
    lags = sorted(record.lag_s for record in records if record.lag_s is not None)
    failed = sum(record.outcome is not Outcome.OK for record in records)
    return Capacity(len(records), failed, _share(lags, 0.5), _share(lags, 0.99), cpu, processes)


def _schedule(load: CapacityLoad) -> list[Due]:
    offsets = poisson(load.rate, load.duration_s, load.seed)
    shape = Shape(load.prompt_tokens, load.max_tokens)
    requests = synthetic("capacity", load.seed, len(offsets), shape, Vocabulary(_VOCABULARY))
    return at_offsets(requests, [offset + 2 * LEAD_S for offset in offsets])


def _cpu_s(pids: Iterable[int]) -> float:
    """What processes that still run have used, from proc(5): user and system time."""
    stats = [Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2] for pid in pids]
    ticks = sum(int(ticks) for stat in stats for ticks in stat.split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


async def _drive(url: str, schedule: list[Due], limits: Limits) -> list[RequestRecord]:
    target = await resolve(url)
    client = LoadClient(target, Asking("mock"), Labels("mock", "capacity", monotonic()), limits)
    try:
        return await run_open(client, schedule, Patience(), lambda *_: None)
    finally:
        client.close()


def _script(tokens: int, gap_s: float) -> Script:
    words = [completion("a", 1, "length" if at == tokens - 1 else None) for at in range(tokens)]
    return script_of([*(event(word) for word in words), total(tokens), DONE], pace_s=gap_s)


def _share(ordered: list[float], share: float) -> float:
    return ordered[ceil(share * len(ordered)) - 1] if ordered else 0.0


@asynccontextmanager
async def _server(script: Script) -> AsyncIterator[str]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(script, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield await _started(ours)
    finally:
        ours.close()
        await asyncio.to_thread(process.join)


async def _started(child: Pipe) -> str:
    try:
        return (await asyncio.to_thread(child.recv_bytes)).decode()
    except EOFError as error:
        raise UnavailableError("the mock server's process did not start") from error


def _serve(script: Script, parent: Pipe) -> None:
    asyncio.run(_serve_until_left(script, parent))


async def _serve_until_left(script: Script, parent: Pipe) -> None:
    async with MockServer(lambda *_: script) as server:
        parent.send_bytes(server.url.encode())
        try:
            await asyncio.to_thread(parent.recv_bytes)
        except EOFError:
            return
