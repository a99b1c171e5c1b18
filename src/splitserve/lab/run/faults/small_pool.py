"""The split with decode workers whose KV pool is soon full."""

from dataclasses import replace

import msgspec

from splitserve.lab.plan.arms import started
from splitserve.lab.plan.faults import (
    HELD_BY_POOL,
    KV_POOL_FULL,
    arm_under,
    longest_tokens,
    why_not_made,
)
from splitserve.lab.plan.resolve import Plan
from splitserve.launch.plan import itemsize
from splitserve.launch.sizes import ByteSize
from splitserve.launch.topology import ModelAsked, Topology, WorkerGroup
from splitserve.modelstore.progress import Silent
from splitserve.modelstore.resolve import resolve


def with_small_pool(plan: Plan) -> Plan:
    """``plan`` with the arm that fault ``kv_pool_full`` needs among its variants, where it is asked
    for and can be made. Its digest stays: the arm follows from the plan."""
    tokens, topology = longest_tokens(plan.study), plan.split.topology
    if KV_POOL_FULL not in plan.study.further.faults:
        return plan
    if topology is None or tokens is None or why_not_made(plan, KV_POOL_FULL):
        return plan
    small = started(arm_under(plan, KV_POOL_FULL).label, plan.split.arm, shrunk(topology, tokens))
    # The engine that computes nothing has a pool of its own kind, which no real one has to match.
    kept = {key: value for key, value in plan.split.config.items() if ".fake." in key}
    small = replace(small, config={**small.config, **kept})
    return replace(plan, variants={**plan.variants, KV_POOL_FULL: small})


def shrunk(topology: Topology, tokens: int) -> Topology:
    """``topology`` whose decode workers hold ``HELD_BY_POOL`` requests of so many tokens.

    Raises ConfigError or UnavailableError for a model that is not there.
    """
    model = topology.model
    groups = (
        _shrunk(group, model, tokens) if group.role == "decode" else group
        for group in topology.workers
    )
    return msgspec.structs.replace(topology, workers=tuple(groups))


def _shrunk(group: WorkerGroup, model: ModelAsked, tokens: int) -> WorkerGroup:
    blocks = HELD_BY_POOL * -(-tokens // model.block_size)
    if group.engine == "fake":
        fake = msgspec.structs.replace(group.fake, num_blocks=blocks)
        return msgspec.structs.replace(group, fake=fake)
    folder = resolve(model.name, progress=Silent())
    token_bytes = folder.kv_token_bytes(itemsize(model.dtype))
    size = ByteSize(blocks * model.block_size * token_bytes)
    return msgspec.structs.replace(group, kv_cache_memory_bytes=size)
