"""``splitserve bench serve``: a model, served in the shapes asked for, under its clients' loads."""

import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

import aiohttp
import msgspec
import uvloop
from rich.console import Console

from splitserve.bench.scrape import Handoffs, read_handoffs
from splitserve.bench.serve_cases import (
    CASES,
    Case,
    ClientTimes,
    find_served,
    measure_case,
    parse_case,
    warm,
)
from splitserve.bench.served_model import prompt_ids
from splitserve.cli.readings import print_progress, print_readings
from splitserve.engine.device import parse_device
from splitserve.errors import ConfigError
from splitserve.launch.narrate import Narrator
from splitserve.launch.running import running
from splitserve.launch.show import show_log
from splitserve.launch.topology import GatewayAsked, ModelAsked, Topology, WorkerGroup, checked
from splitserve.lifecycle import StartFailed

SHAPES: Final = ("colocated", "1p1d")
_SHAPE: Final = re.compile(r"([1-9]\d*)p([1-9]\d*)d|([1-9]\d*)?colocated")


@dataclass(frozen=True, slots=True)
class _Started:
    """``ready_s`` None: it was running already."""

    url: str
    ready_s: float | None


@dataclass(frozen=True, slots=True)
class _KV:
    """Handoffs of one case. ``exposed_ms``, a mean: first token sampled to last byte in place."""

    handoffs: int
    exposed_ms: float
    fallbacks: int


def run(
    model: ModelAsked,
    group: WorkerGroup,
    *,
    shapes: Sequence[str],
    urls: Sequence[str],
    cases: Sequence[str],
    log_dir: Path | None,
    as_json: bool,
) -> int:
    """Prints a line per case of each shape, or of each of the ``urls`` where there are any.

    Raises ConfigError for a case or shape that is none, before anything is started.
    """
    asked = [parse_case(text) for text in cases or CASES[parse_device(group.device).kind]]
    topologies = {shape: _topology(model, group, shape) for shape in shapes or SHAPES}
    load = _Load(asked, prompt_ids(model.name), secrets.randbits(32), as_json)
    err = Console(stderr=True)
    narrator = Narrator(err)
    try:
        uvloop.run(
            _all_urls(urls, load) if urls else _all_shapes(topologies, narrator, log_dir, load)
        )
    except StartFailed as error:
        show_log(err, error)
        raise
    return 0


@dataclass(frozen=True, slots=True)
class _Load:
    """The same for all that are measured. ``seed`` is new in every run: no cache knows it."""

    cases: Sequence[Case]
    vocab_size: int
    seed: int
    as_json: bool


async def _all_urls(urls: Sequence[str], load: _Load) -> None:
    for url in urls:
        await _measure(url, _Started(url, None), load)


async def _all_shapes(
    topologies: dict[str, Topology], narrator: Narrator, log_dir: Path | None, load: _Load
) -> None:
    for shape, topology in topologies.items():
        narrator.say(f"{shape}: starting")
        async with _started(topology, narrator, log_dir) as started:
            narrator.say(f"{shape}: ready after {started.ready_s:.1f} s")
            await _measure(shape, started, load)


@asynccontextmanager
async def _started(
    topology: Topology, narrator: Narrator, log_dir: Path | None
) -> AsyncIterator[_Started]:
    born = perf_counter()
    async with running(topology, log_dir=log_dir, on_change=narrator.changed) as deployment:
        yield _Started(deployment.url, round(perf_counter() - born, 1))


async def _measure(name: str, target: _Started, load: _Load) -> None:
    served = await find_served(target.url, load.vocab_size, load.seed)
    await warm(served, load.cases)
    for case in load.cases:
        print_progress(f"{name}: {case.name}")
        before = await _handoffs(target)
        times = await measure_case(served, case)
        kv = _kv(before, await _handoffs(target))
        row = {"served": name, "case": case.name, "ready_s": target.ready_s}
        print_readings([row | _fields(times) | _fields(kv)], load.as_json)


async def _handoffs(target: _Started) -> Handoffs | None:
    """None at a URL: other servers count them otherwise or not at all."""
    if target.ready_s is None:
        return None
    async with aiohttp.ClientSession() as session:
        return await read_handoffs(session, target.url)


def _kv(before: Handoffs | None, after: Handoffs | None) -> _KV | None:
    if before is None or after is None:
        return None
    new = after.since(before)
    return _KV(int(new.count), round(new.mean_exposed_s * 1e3, 3), int(new.fallbacks))


def _fields(reading: ClientTimes | _KV | None) -> dict[str, object]:
    return {} if reading is None else dict(msgspec.to_builtins(reading))


def _topology(model: ModelAsked, group: WorkerGroup, shape: str) -> Topology:
    """``1p1d``, ``2p2d``, ``colocated``, ``2colocated`` and so on, on a free port."""
    match = _SHAPE.fullmatch(shape)
    if match is None:
        raise ConfigError(f"--shape {shape!r} is none; write colocated, 2colocated, 1p1d or 2p2d")
    counts = (
        {"colocated": match[3] or 1}
        if match[1] is None
        else {"prefill": match[1], "decode": match[2]}
    )
    workers = tuple(
        msgspec.structs.replace(group, role=role, count=int(count))
        for role, count in counts.items()
    )
    return checked(Topology(model=model, workers=workers, gateway=GatewayAsked(port=0)))
