"""``splitserve bench exposed``: exposed transfer time under load, by connector."""

from collections.abc import Mapping, Sequence

import uvloop
from msgspec.structs import replace
from rich.console import Console

from splitserve.bench.exposed import (
    ExposedReading,
    connector_readings,
    measure_exposed,
    ratio_readings,
    turns_of,
    usable_connectors,
)
from splitserve.bench.load import LoadPlan
from splitserve.bench.serve_cases import find_served
from splitserve.bench.served_model import prompt_ids
from splitserve.bench.shapes import GROUP, split_shape
from splitserve.cli.readings import print_progress, print_readings
from splitserve.errors import ConfigError
from splitserve.launch.group import WorkerGroup
from splitserve.launch.narrate import Narrator
from splitserve.launch.running import running
from splitserve.launch.show import show_log
from splitserve.launch.topology import Topology
from splitserve.lifecycle import StartFailed


def run(
    model: str,
    *,
    connectors: Sequence[str],
    rounds: int,
    rate: float,
    seconds: float,
    prompt_tokens: int,
    tokens: int,
    seed: int,
    as_json: bool,
    group: WorkerGroup = GROUP,
) -> int:
    """A line per round and connector, then one per connector, then the ratios to the first. Without
    ``connectors`` all that can be used here; workers are like ``group``.

    Raises ConfigError for a connector that is none, or is named twice.
    """
    if len(set(connectors)) < len(connectors):
        raise ConfigError(f"--connectors names one twice: {','.join(connectors)}")
    chosen = connectors or usable_connectors()
    topologies = {name: _telling(model, replace(group, connector=name)) for name in chosen}
    plan = LoadPlan(rate, seconds, prompt_tokens, tokens, prompt_ids(model), seed)
    err = Console(stderr=True)
    try:
        uvloop.run(_all(topologies, plan, rounds, Narrator(err), as_json))
    except StartFailed as error:
        show_log(err, error)
        raise
    return 0


def _telling(model: str, group: WorkerGroup) -> Topology:
    """Its answers tell where their time went."""
    asked = split_shape(model, group)
    return replace(asked, gateway=replace(asked.gateway, enable_per_request_metrics=True))


async def _all(
    topologies: Mapping[str, Topology],
    plan: LoadPlan,
    rounds: int,
    narrator: Narrator,
    as_json: bool,
) -> None:
    found: list[ExposedReading] = []
    for number, connector in turns_of(list(topologies), rounds):
        print_progress(f"round {number} of {rounds}: {connector}")
        async with running(topologies[connector], on_change=narrator.changed) as deployment:
            served = await find_served(deployment.url, plan.vocab_size, plan.seed)
            found.append(await measure_exposed(served, plan, connector, number))
        print_readings(found[-1:], as_json)
    print_readings(connector_readings(found), as_json)
    print_readings(ratio_readings(found), as_json)
