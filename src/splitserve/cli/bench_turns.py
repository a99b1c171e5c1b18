"""``splitserve bench turns``: what each turn of a chat costs over a prefill and a decode worker."""

import secrets
from collections.abc import Sequence

import uvloop
from msgspec.structs import replace
from rich.console import Console

from splitserve.bench.serve_cases import find_served
from splitserve.bench.served_model import prompt_ids
from splitserve.bench.shapes import GROUP, split_shape
from splitserve.bench.turns import (
    RatioReading,
    Talk,
    TalkShape,
    TurnReading,
    measure_turns,
    ratio_readings,
    turn_readings,
)
from splitserve.cli.readings import print_progress, print_readings
from splitserve.launch.group import WorkerGroup
from splitserve.launch.narrate import Narrator
from splitserve.launch.running import running
from splitserve.launch.show import show_log
from splitserve.launch.topology import Topology
from splitserve.lifecycle import StartFailed


def run(
    model: str,
    *,
    connector: str,
    conversations: int,
    turns: int,
    turn_tokens: int,
    tokens: int,
    as_json: bool,
    group: WorkerGroup = GROUP,
) -> int:
    """A line per turn, then the ratios. Workers are like ``group``."""
    err = Console(stderr=True)
    topology = split_shape(model, replace(group, connector=connector))
    shape = TalkShape(turns, turn_tokens, tokens)
    try:
        talks = uvloop.run(_measured(topology, shape, conversations, Narrator(err)))
    except StartFailed as error:
        show_log(err, error)
        raise
    costs, ratios = turn_readings(talks), ratio_readings(talks)
    if as_json:
        print_readings([*costs, *ratios], as_json)
    else:
        print("\n".join(lines_of(costs, ratios)), flush=True)
    return 0


def lines_of(turns: Sequence[TurnReading], ratios: Sequence[RatioReading]) -> list[str]:
    """The table, for people."""
    head = f"{'turn':>4}  {'prompt':>6}  {'computed':>8}  {'pulled':>6}  {'TTFT ms':>24}"
    return [
        f"{head}  {'computed afresh':>15}  {'TTFT ms afresh':>24}",
        *map(_line, turns),
        *(
            f"{one.ratio}: {_spread(one.median, one.min, one.max, 2)} in {one.talks} conversations"
            for one in ratios
        ),
    ]


def _line(one: TurnReading) -> str:
    told = _spread(one.ttft_ms, one.ttft_min_ms, one.ttft_max_ms, 1)
    fresh = _spread(one.fresh_ttft_ms, one.fresh_ttft_min_ms, one.fresh_ttft_max_ms, 1)
    return (
        f"{one.turn:>4}  {one.prompt_tokens:>6}  {one.computed:>8}  {one.pulled:>6}  {told:>24}"
        f"  {one.fresh_computed:>15}  {fresh:>24}"
    )


def _spread(median: float, least: float, most: float, digits: int) -> str:
    return f"{median:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


async def _measured(
    topology: Topology, shape: TalkShape, conversations: int, narrator: Narrator
) -> list[Talk]:
    def heard(number: int) -> None:
        what = f"conversation {number} of {conversations}" if number else "the one to warm up"
        print_progress(f"{what} is over")

    async with running(topology, on_change=narrator.changed) as deployment:
        served = await find_served(
            deployment.url, prompt_ids(topology.model.name), secrets.randbits(32)
        )
        return await measure_turns(served, shape, conversations, heard)
