"""A soak: many streams for a long time while workers are killed, frozen and restarted.

Two prefill and two decode workers with the fake engine, whose every token is known beforehand, as
real processes under the launcher's own supervision. What must hold: no request lost, no token
wrong, no block leaked, no stream hangs.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from splitserve.bench.soak_chaos import Chaos, Disturbances
from splitserve.bench.soak_client import Client, Tally
from splitserve.clock import monotonic
from splitserve.engine.fake import FakeConfig
from splitserve.launch.keep import Limits
from splitserve.launch.restart import RestartPolicy
from splitserve.launch.running import running
from splitserve.launch.supervise import Deployment
from splitserve.launch.topology import FakeCosts, GatewayAsked, ModelAsked, Topology, WorkerGroup
from splitserve.modelstore.resolve import resolve
from splitserve.processes.worker import FAKE_TOKEN_HIGH, FAKE_TOKEN_LOW

SETTLE_S: Final = 5.0
"""Within this time of the last answer all blocks are free or cached."""

REPORT_EVERY_S: Final = 10.0

COSTS: Final = FakeCosts(step_ms=20, prefill_us_per_token=50, num_blocks=1024)

_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class SoakReading:
    """Counts of one soak: see Tally and Disturbances. ``leaked_blocks`` were neither free nor
    cached at the end. ``errors`` by what clients were told."""

    seconds: float
    streams: int
    seed: int
    requests: int
    whole: int
    left: int
    refused: int
    lost: int
    wrong: int
    hung: int
    leaked_blocks: int
    kills: int
    freezes: int
    rolls: int
    errors: dict[str, int]

    @property
    def clean(self) -> bool:
        """Something was answered, and nothing happened that must not."""
        return self.whole > 0 and not (self.lost or self.wrong or self.hung or self.leaked_blocks)


async def soak(
    model: str, seconds: float, streams: int, seed: int, say: Callable[[str], None]
) -> SoakReading:
    """Raises StartFailed when the processes do not start, UnavailableError when a rolling restart
    does not get through."""
    folder = resolve(model)
    engine = FakeConfig(
        vocab_size=int(folder.config()["vocab_size"]),
        token_low=FAKE_TOKEN_LOW,
        token_high=FAKE_TOKEN_HIGH,
    )
    async with running(_topology(model, folder.served_name), limits=_limits()) as deployment:
        tally, chaos = Tally(), Chaos(deployment, seed)
        start = monotonic()
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            clients = [
                Client(session, deployment.url, folder.served_name, engine, tally, f"{seed}-{i}")
                for i in range(streams)
            ]
            await _run(clients, chaos, seconds, lambda: _tell(say, start, tally, chaos.done))
            leaked = await _leaked(session, deployment)
        return _reading(monotonic() - start, streams, seed, tally, chaos.done, leaked)


def _topology(model: str, served: str) -> Topology:
    def group(role: str) -> WorkerGroup:
        return WorkerGroup(role=role, count=2, engine="fake", fake=COSTS)

    return Topology(
        model=ModelAsked(name=model, served_model_name=served),
        workers=(group("prefill"), group("decode")),
        gateway=GatewayAsked(port=0),
    )


def _limits() -> Limits:
    """A worker that is killed again and again is started again and again."""
    return Limits(restart=RestartPolicy(first_s=0.1, limit_s=0.1, give_up_after=1_000_000))


async def _run(
    clients: list[Client], chaos: Chaos, seconds: float, tell: Callable[[], None]
) -> None:
    over = asyncio.Event()
    reading = [asyncio.create_task(client.run(over)) for client in clients]
    disturbing = asyncio.create_task(chaos.run())
    telling = asyncio.create_task(_every(REPORT_EVERY_S, tell))
    try:
        await asyncio.wait([disturbing], timeout=seconds)
    finally:
        over.set()
        telling.cancel()
        disturbing.cancel()
        with suppress(asyncio.CancelledError):
            await disturbing
        await asyncio.gather(*reading)


async def _every(seconds: float, tell: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        tell()


async def _leaked(session: aiohttp.ClientSession, deployment: Deployment) -> int:
    """Blocks of all workers that are neither free nor cached, once that is 0 or time is up.

    A worker that does not answer within that time has leaked at least its report: -1 for it would
    hide others, so it counts as one.
    """
    deadline = monotonic() + SETTLE_S
    workers = len(deployment.processes) - 1
    while True:
        blocks = await _blocks(session, deployment.url)
        leaked = sum(count for states in blocks.values() for count in states) + (
            workers - len(blocks)
        )
        if not leaked or monotonic() > deadline:
            return leaked
        await asyncio.sleep(_POLL_S)


async def _blocks(session: aiohttp.ClientSession, url: str) -> dict[str, list[int]]:
    """By worker that is connected: its counts in every state but free and cached."""
    async with session.get(f"{url}/metrics") as answer:
        text = await answer.text()
    found: dict[str, list[int]] = {}
    for family in text_string_to_metric_families(text):
        if family.name == "splitserve_kv_blocks":
            for sample in family.samples:
                counts = found.setdefault(sample.labels["worker"], [])
                if sample.labels["state"] not in ("free", "cached"):
                    counts.append(int(sample.value))
    return found


def _tell(say: Callable[[str], None], start: float, tally: Tally, done: Disturbances) -> None:
    say(
        f"{monotonic() - start:.0f} s: {tally.requests} requests, {tally.whole} whole, "
        f"{tally.lost} lost, {tally.wrong} wrong, {tally.hung} hung; "
        f"{done.kills} kills, {done.freezes} freezes, {done.rolls} rolling restarts"
    )


def _reading(
    seconds: float, streams: int, seed: int, tally: Tally, done: Disturbances, leaked: int
) -> SoakReading:
    return SoakReading(
        seconds=seconds,
        streams=streams,
        seed=seed,
        requests=tally.requests,
        whole=tally.whole,
        left=tally.left,
        refused=tally.refused,
        lost=tally.lost,
        wrong=tally.wrong,
        hung=tally.hung,
        leaked_blocks=leaked,
        kills=done.kills,
        freezes=done.freezes,
        rolls=done.rolls,
        errors=dict(tally.errors),
    )
