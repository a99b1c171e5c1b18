"""One load on two shapes, one after the other: the demo's measurement.

One run each, on one machine: enough to see the effect, not to decide by.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import aiohttp

from splitserve.bench.load import LoadPlan, client_of, error_of, requests_of, run_load
from splitserve.bench.quantile import quantile
from splitserve.bench.scrape import Handoffs, read_handoffs
from splitserve.bench.shapes import colocated_shape, split_shape
from splitserve.bench.summary import Summary, summarise
from splitserve.errors import UnavailableError
from splitserve.lab.measure.latency import ttft_user
from splitserve.launch.running import running

IDLE_PROBES: Final = 5
PROBE_TOKENS: Final = 4
UTILISATION: Final = 0.6
"""Share of the prefill worker's time that the load shall take when no rate is given."""

Talk = Callable[[str], Awaitable[None]]
"""Shown a running deployment's URL before it is loaded."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one shape did. ``idle_ttft_s`` is the median without other load."""

    shape: str
    idle_ttft_s: float
    summary: Summary
    handoffs: Handoffs


class Watcher:
    """Told how far a comparison is. The default keeps quiet."""

    def stage(self, text: str) -> None:
        """A new part begins."""

    def progress(self, finished: int, total: int, elapsed_s: float) -> None:
        """Answers finished of the running load."""


async def measure_shapes(
    model: str, plan: LoadPlan, watcher: Watcher, talk: Talk
) -> tuple[LoadPlan, Outcome, Outcome]:
    """Runs ``plan`` on 1P1D, then on two colocated replicas.

    A rate of 0 is replaced by one that keeps the prefill worker busy for UTILISATION of the time.
    Returns the plan as run, the split's outcome and the colocated one's.
    """
    watcher.stage("starting one prefill and one decode worker")
    async with running(split_shape(model)) as deployment:
        await talk(deployment.url)
        idle = await _idle_ttft(deployment.url, model, plan, watcher)
        if plan.rate == 0:
            plan = replace(plan, rate=round(UTILISATION / idle, 2))
        split = await _measure("1P1D", deployment.url, model, plan, idle, watcher)
    watcher.stage("starting two colocated replicas")
    async with running(colocated_shape(model)) as deployment:
        idle = await _idle_ttft(deployment.url, model, plan, watcher)
        whole = await _measure("2 colocated", deployment.url, model, plan, idle, watcher)
    return plan, split, whole


async def _measure(
    shape: str, url: str, model: str, plan: LoadPlan, idle_ttft_s: float, watcher: Watcher
) -> Outcome:
    watcher.stage(
        f"{shape}: {plan.duration_s:.0f} s of {plan.rate} requests/s, "
        f"{plan.prompt_tokens} tokens in, {plan.max_tokens} out"
    )
    async with aiohttp.ClientSession() as session:
        before = await read_handoffs(session, url)
        records = await run_load(url, model, plan, watcher.progress)
        after = await read_handoffs(session, url)
    return Outcome(shape, idle_ttft_s, summarise(records), after.since(before))


async def _idle_ttft(url: str, model: str, plan: LoadPlan, watcher: Watcher) -> float:
    """Median TTFT of single requests; they warm the deployment up at the same time."""
    watcher.stage("measuring the first token without other load")
    probe = replace(plan, seed=plan.seed + 1_000_003, max_tokens=PROBE_TOKENS)
    ttfts = []
    async with client_of(url, model) as client:
        for request in requests_of(probe, IDLE_PROBES):
            record = await client.send(request, client.now())
            error = error_of(record)
            if error:
                raise UnavailableError(f"a request failed: {error}")
            ttfts.append(ttft_user(record))
    return quantile(ttfts, 0.5)
