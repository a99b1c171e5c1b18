"""What a topology would do on this machine."""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from splitserve.doctor.costs import prompt_costs
from splitserve.doctor.findings import (
    Advice,
    Link,
    Machine,
    ModelKV,
    PlannedWorker,
    TopologyReport,
)
from splitserve.doctor.link_advice import link_advice
from splitserve.doctor.machine_advice import machine_advice
from splitserve.doctor.pairs import pairs_of
from splitserve.doctor.ports import look_at, wanted_ports
from splitserve.doctor.topology_advice import (
    gpu_advice,
    model_advice,
    pair_advice,
    port_advice,
    tier_advice,
    would_not_start,
)
from splitserve.errors import ConfigError, UnavailableError
from splitserve.launch.facts import machine_facts
from splitserve.launch.group import VLLM
from splitserve.launch.plan import ModelFacts, Plan, resolve
from splitserve.launch.ports import ports_needed
from splitserve.launch.programs import check_programs
from splitserve.launch.spec import Paths
from splitserve.launch.topology import Topology

_RUN_DIR: Final = "splitserve-xxxxxxxx"
"""As long as a name that a run's folder gets."""


def examine_topology(
    name: str,
    topology: Topology,
    facts: ModelFacts | None,
    machine: Machine,
    links: Sequence[Link],
    ttft_target_ms: float,
) -> TopologyReport:
    """``name`` is the file's. ``facts`` are the model's, None where it is not here; ``links`` those
    measured on ``machine``. What would keep the topology from starting is advice of level error."""
    trouble = list(_refusals(lambda: check_programs(topology)))
    planned: list[Plan] = []
    trouble += _refusals(lambda: planned.append(_plan(topology, facts)))
    plan = planned[0] if planned else None
    pairs, ports = pairs_of(topology), tuple(map(look_at, wanted_ports(topology)))
    model = None if facts is None else _model_kv(topology, facts)
    costs = () if model is None else prompt_costs(model, links, ttft_target_ms)
    advice = [
        *trouble,
        *_warnings(plan),
        *gpu_advice(topology, plan, machine.gpus),
        *tier_advice(topology, machine),
        *port_advice(ports),
        *model_advice(topology, model),
        *pair_advice(pairs, links, model, ttft_target_ms),
        *machine_advice(machine),
        *link_advice(links),
    ]
    return TopologyReport(
        kind="topology",
        topology=name,
        ttft_target_ms=ttft_target_ms,
        machine=machine,
        links=tuple(links),
        model=model,
        workers=() if plan is None else tuple(_workers(plan, known=facts is not None)),
        pairs=pairs,
        ports=ports,
        prompts=costs,
        advice=tuple(advice),
    )


def _refusals(check: Callable[[], None]) -> Iterator[Advice]:
    """One, when ``check`` says that this would not start."""
    try:
        check()
    except (ConfigError, UnavailableError) as error:
        yield would_not_start(str(error))


def _plan(topology: Topology, facts: ModelFacts | None) -> Plan:
    """With a model that weighs nothing where it is not known. Raises as ``resolve`` does."""
    asked = topology.model
    unknown = ModelFacts(1, asked.max_model_len or 1, 0, asked.name)
    run_dir = f"{tempfile.gettempdir()}/{_RUN_DIR}"
    machine = machine_facts(ports_needed(topology))
    return resolve(topology, machine, facts or unknown, Paths(run_dir, sys.executable))


def _model_kv(topology: Topology, facts: ModelFacts) -> ModelKV:
    asked = topology.model
    longest = asked.max_model_len or facts.max_model_len
    return ModelKV(asked.served_as, facts.kv_token_bytes, longest, facts.weight_bytes)


def _warnings(plan: Plan | None) -> Iterable[Advice]:
    """What ``up`` itself would warn of: its lines have their cure within."""
    lines = () if plan is None else plan.warnings
    return [Advice("warning", "plan", line, "") for line in lines]


def _workers(plan: Plan, known: bool) -> Iterator[PlannedWorker]:
    """``known``: the model is."""
    for worker in plan.workers:
        group = worker.group
        connector = group.chosen_kv_connector if group.engine == VLLM else group.chosen_connector
        yield PlannedWorker(
            worker.process.name,
            group.role,
            group.engine,
            worker.device,
            worker.process.cores,
            connector,
            worker.kv_tokens if known else None,
        )
    for attached in plan.attached:
        yield PlannedWorker(attached.name, attached.role, VLLM, "", (), "", None, attached.url)
