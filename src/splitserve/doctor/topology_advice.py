"""What to change before a topology is started. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from splitserve.doctor.costs import PROMPTS, TRANSFER_SHARE, link_of, transfer_ms
from splitserve.doctor.findings import Advice, Gpu, Link, Machine, ModelKV, Pair, Port
from splitserve.launch.devices import gpu_numbers
from splitserve.launch.group import VLLM, WorkerGroup
from splitserve.launch.plan import Plan
from splitserve.launch.sizes import format_size
from splitserve.launch.topology import Topology
from splitserve.modelstore.known import KNOWN
from splitserve.transfer.registry import choose_connector

SLOW_SHARE: Final = 0.5
"""Of the faster path's rate. Measurements of half a second vary by less."""


def would_not_start(reason: str) -> Advice:
    """``reason`` is what ``up`` would say, cure and all."""
    return Advice("error", "start", reason, "")


def model_advice(topology: Topology, model: ModelKV | None) -> Iterator[Advice]:
    name = topology.model.name
    if model is None:
        yield Advice(
            "warning",
            "model",
            f"{name} is not here yet: the first start fetches it, and what its KV weighs is not "
            "known before",
            f"splitserve pull {name}" if name in KNOWN else f"hf download {name}",
        )


def port_advice(ports: Iterable[Port]) -> Iterator[Advice]:
    for port in ports:
        where = f"{port.user}: {port.purpose} port {port.host}:{port.number}"
        if port.right:
            continue
        if port.must == "free":
            yield Advice(
                "error",
                "port",
                f"{where} is taken, or this user may not listen there",
                "stop who listens there (ss -ltnp), or name another port",
            )
        elif port.purpose == "side channel":
            yield Advice(
                "warning",
                "port",
                f"{where} is closed: decode cannot ask there where prefill's KV is, and every "
                "handoff falls back or waits",
                "start the instance with a side channel host that decode reaches, and open the "
                "port in firewalls",
            )
        else:
            yield Advice(
                "warning",
                "port",
                f"{where} does not answer",
                "start the instance, or correct its url",
            )


def pair_advice(
    pairs: Iterable[Pair], links: Sequence[Link], model: ModelKV | None, ttft_target_ms: float
) -> Iterator[Advice]:
    """Each chosen path once, whatever the number of pairs."""
    for pair in {(pair.path, pair.on_gpu): pair for pair in pairs if pair.path}.values():
        link = link_of(pair, links)
        if link is not None:
            yield from _outdone(pair, link, links)
            if model is not None:
                yield from _dear(pair, link, model, ttft_target_ms)
        elif pair.engine != VLLM:
            # vLLM may have its own environment, with packages that this one lacks.
            yield from _unusable(pair, links)


def gpu_advice(topology: Topology, plan: Plan | None, gpus: Sequence[Gpu]) -> Iterator[Advice]:
    launched = [group for group in topology.workers if not group.attached]
    if not gpus and any(group.device == "cuda" for group in launched):
        yield Advice(
            "error",
            "gpu",
            "workers are to run on GPUs, and there is none that processes here may see",
            "look at nvidia-smi and CUDA_VISIBLE_DEVICES; in a container --gpus all",
        )
    if plan is not None:
        for number, gpu in enumerate(gpus):
            yield from _gpu_room(number, gpu, plan)


def tier_advice(topology: Topology, machine: Machine) -> Iterator[Advice]:
    """Of the KV tier's memory, which all workers of the host share."""
    asked = max((group.kv_tier_memory_bytes for group in topology.workers), default=0)
    if asked > machine.shm_bytes:
        yield would_not_start(
            f"kv_tier_memory_bytes is {format_size(asked)}, and /dev/shm has "
            f"{format_size(machine.shm_bytes)}; lower it, or start the container with --shm-size"
        )
    elif asked > machine.shm_free_bytes:
        yield Advice(
            "warning",
            "shm",
            f"kv_tier_memory_bytes is {format_size(asked)}, and /dev/shm has "
            f"{format_size(machine.shm_free_bytes)} free",
            "remove what processes that ended have left there (ls -l /dev/shm), or lower it",
        )


def _dear(pair: Pair, link: Link, model: ModelKV, ttft_target_ms: float) -> Iterator[Advice]:
    """The shortest prompt whose KV takes too much of the target."""
    for tokens in PROMPTS:
        nbytes = tokens * model.kv_token_bytes
        ms = transfer_ms(nbytes, link)
        if tokens <= model.max_model_len and ms > TRANSFER_SHARE * ttft_target_ms:
            yield Advice(
                "warning",
                "cost",
                f"{pair.connector}: the {format_size(nbytes)} of a prompt of {tokens:,} tokens "
                f"take {ms:.0f} ms over {link.path}, {ms / ttft_target_ms:.0%} of the "
                f"{ttft_target_ms:.0f} ms to the first token, unless they are sent while the "
                "prompt is computed",
                "take a faster path between prefill and decode, or measure whether to split "
                "(splitserve lab)",
            )
            return


def _outdone(pair: Pair, link: Link, links: Iterable[Link]) -> Iterator[Advice]:
    """A path that was asked for where the one chosen by itself is much faster. vLLM's paths are
    other code than what was measured."""
    own = choose_connector("cuda" if pair.on_gpu else "cpu")
    if pair.engine == VLLM or pair.path == own:
        return
    best = link_of(replace(pair, path=own), links)
    if best is not None and link.gb_per_s < SLOW_SHARE * best.gb_per_s:
        yield Advice(
            "warning",
            "slow",
            f"{pair.connector} brings {link.gb_per_s:.2f} GB/s here and {own} {best.gb_per_s:.2f}",
            f"leave out connector, which takes {own} between workers of one host",
        )


def _unusable(pair: Pair, links: Iterable[Link]) -> Iterator[Advice]:
    for link in links:
        if link.path == pair.path and link.source.startswith("cuda") == pair.on_gpu:
            yield would_not_start(f"connector {pair.connector} cannot be used: {link.why}")
            return


def _gpu_room(number: int, gpu: Gpu, plan: Plan) -> Iterator[Advice]:
    """``number`` as processes here count GPUs."""
    groups = [worker.group for worker in plan.workers if number in gpu_numbers([worker.device])]
    asked = sum(_asked_bytes(group, gpu, plan) for group in groups)
    if groups and gpu.memory_bytes and asked > gpu.memory_bytes:
        yield would_not_start(
            f"GPU {number} has {format_size(gpu.memory_bytes)}, and {len(groups)} workers ask for "
            f"{format_size(asked)} of it; lower kv_cache_memory_bytes"
        )
    elif groups and gpu.memory_bytes and asked > gpu.free_bytes:
        yield Advice(
            "warning",
            "gpu",
            f"GPU {number} has {format_size(gpu.free_bytes)} free, and its workers ask for "
            f"{format_size(asked)}",
            "end what else runs there (nvidia-smi), or lower gpu_memory_utilization",
        )


def _asked_bytes(group: WorkerGroup, gpu: Gpu, plan: Plan) -> float:
    """Of one GPU by one worker: its share of the weights, and the pool that each GPU has."""
    pool = group.kv_cache_memory_bytes
    if pool is None:
        return group.gpu_memory_utilization * gpu.memory_bytes
    return plan.model.weight_bytes / group.tensor_parallel_size + pool
