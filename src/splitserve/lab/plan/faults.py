"""Which faults can be brought about on the pd arm of a plan, and on what. Pure."""

from dataclasses import replace
from typing import Final

from splitserve.lab.plan.arms import PlannedArm
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.plan.study import FAULTS, Study
from splitserve.launch.topology import VLLM, Topology

TIMEOUTS, KILL_PREFILL, KILL_DECODE, SLOW_LINK, KV_POOL_FULL = FAULTS

ROLE_STRUCK: Final = {TIMEOUTS: "prefill", KILL_PREFILL: "prefill", KILL_DECODE: "decode"}
"""Faults of one worker process, and of which role it is."""

HELD_BY_POOL: Final = 2
"""So many of the target's longest requests fit into a decode worker's pool at once."""

USERS_OF_POOL: Final = 8
"""So many are under way: most of them find it full."""

LONGEST_STOP_S: Final = 20.0


def stop_s(study: Study) -> float:
    """How long ``timeouts`` stops a worker: longer than the client waits for a first token, or
    ``LONGEST_STOP_S``. A gateway of ours takes a worker for lost after 2 s of silence."""
    return min(study.routing.first_timeout_s + 1, LONGEST_STOP_S)


def heals_in_s(study: Study, fault: str) -> float:
    """What the time after the load, until all is whole again, is taken for."""
    if fault == TIMEOUTS:
        return stop_s(study)
    return study.budget.start_s if fault in ROLE_STRUCK else 0.0


def users_under(fault: str) -> int | None:
    """Requests under way, where the fault needs a number of them; None: the target's load."""
    return USERS_OF_POOL if fault == KV_POOL_FULL else None


def arm_under(plan: Plan, fault: str) -> PlannedArm:
    """The pd arm, or what it is called with the small pool that ``fault`` needs."""
    if fault != KV_POOL_FULL:
        return plan.split
    return replace(plan.split, label=f"{plan.split.label}@{KV_POOL_FULL}")


def longest_tokens(study: Study) -> int | None:
    """Prompt and answer of the target's longest request; None where the corpus does not say."""
    corpus, target = study.workload.corpus, study.target
    prompt = corpus.prompt_tokens.get(target.prompt)
    output = corpus.output_tokens.get(target.output)
    return None if prompt is None or output is None else prompt + output


def why_not_made(plan: Plan, fault: str) -> str | None:
    """Why ``fault`` cannot be brought about; None where it can."""
    topology = plan.split.topology
    if topology is None:
        return f"{plan.split.label} is not the lab's to break: it did not start it"
    if fault == SLOW_LINK:
        return _why_not_slowed(topology)
    if fault == KV_POOL_FULL:
        return _why_not_filled(topology, longest_tokens(plan.study))
    groups = [group for group in topology.workers if group.role == ROLE_STRUCK[fault]]
    if not groups:
        return f"it has no {ROLE_STRUCK[fault]} workers"
    if any(group.attached for group in groups):
        return f"its {ROLE_STRUCK[fault]} workers run already, and are not the lab's to break"
    return None


def _why_not_slowed(topology: Topology) -> str:
    groups = [group for group in topology.workers if group.role == "prefill"]
    if any(group.engine == VLLM for group in groups):
        return "vLLM moves KV by itself, and the lab has no hold on the network below it"
    connector = groups[0].chosen_connector if groups else "none"
    return f"KV moves through memory that the workers share ({connector}): there is no link to slow"


def _why_not_filled(topology: Topology, longest: int | None) -> str | None:
    groups = [group for group in topology.workers if group.role == "decode"]
    if not groups:
        return "it has no decode workers"
    if any(group.engine == VLLM or group.attached for group in groups):
        return "the size of a vLLM instance's pool is not the lab's to choose"
    if longest is None:
        return "the target has no length of its own, so that nobody knows when a pool is full"
    return None
