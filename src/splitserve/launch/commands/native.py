"""Command lines of Splitserve's own processes.

Every setting is written out, so that ``ps`` shows what runs.
"""

from collections.abc import Sequence
from dataclasses import replace

from splitserve.engine.device import Sizes
from splitserve.launch.addresses import unix_address
from splitserve.launch.spec import PARENT_PID, STATUS_FD, ProcessSpec, WorkerSlot, thread_limits
from splitserve.launch.topology import ModelAsked, Topology, WorkerGroup

_SUPERVISED = ("--status-fd", STATUS_FD, "--parent-pid", PARENT_PID)


def worker_process(slot: WorkerSlot) -> ProcessSpec:
    """``splitserve worker`` on a Unix socket in the run directory."""
    group, address = slot.group, unix_address(slot.paths.run_dir, slot.name)
    sizes, cores = group.sizes, ",".join(map(str, slot.cores))
    return ProcessSpec(
        name=slot.name,
        role=group.role,
        address=address,
        cores=slot.cores,
        env=thread_limits(len(slot.cores)),
        drain_s=group.drain_grace_s,
        argv=(
            *(slot.paths.python, "-m", "splitserve", "worker", slot.model.name),
            *("--role", group.role, "--name", slot.name, "--listen", address),
            *("--engine", group.engine, "--connector", group.chosen_connector),
            *("--device", slot.device),
            *("--tensor-parallel-size", str(group.tensor_parallel_size)),
            *_model_flags(slot.model),
            *_memory_flags(group, sizes),
            *("--max-num-seqs", str(sizes.max_num_seqs)),
            *("--max-num-batched-tokens", str(sizes.max_num_batched_tokens)),
            f"--{'' if group.enable_prefix_caching else 'no-'}enable-prefix-caching",
            *_tier_flags(group),
            *(("--cores", cores) if cores else ()),
            *("--drain-grace-s", str(group.drain_grace_s)),
            *_SUPERVISED,
        ),
    )


def fake_worker_process(slot: WorkerSlot) -> ProcessSpec:
    """The same with the fake engine's costs."""
    process, costs = worker_process(slot), slot.group.fake
    return replace(
        process,
        argv=(
            *process.argv,
            *("--fake-step-ms", str(costs.step_ms)),
            *("--fake-prefill-us-per-token", str(costs.prefill_us_per_token)),
            *("--fake-decode-us-per-seq", str(costs.decode_us_per_seq)),
            *("--fake-num-blocks", str(costs.num_blocks)),
            *("--fake-num-kv-heads", str(costs.num_kv_heads)),
        ),
    )


def gateway_process(
    topology: Topology, python: str, workers: Sequence[str], number: int = 0
) -> ProcessSpec:
    """``splitserve gateway`` in front of the workers at these addresses; ``number`` counts from 0
    to ``gateway.processes``."""
    gateway, model = topology.gateway, topology.model
    several, keys = gateway.processes > 1, gateway.api_key_file
    vllm_key = gateway.vllm_api_key_file
    return ProcessSpec(
        name=f"gateway-{number}" if several else "gateway",
        role="gateway",
        address=f"{gateway.host}:{gateway.port}",
        env=thread_limits(1),
        argv=(
            *(python, "-m", "splitserve", "gateway", model.name),
            *(part for address in workers for part in ("--worker", address)),
            *("--host", gateway.host, "--port", str(gateway.port)),
            *("--served-model-name", model.served_as, "--policy", gateway.policy),
            *_length_flag(model),
            *("--request-timeout-s", str(gateway.request_timeout_s)),
            *("--ttft-deadline-s", str(gateway.ttft_deadline_s)),
            *("--max-queued", str(gateway.max_queued)),
            *("--tool-call-parser", gateway.tool_call_parser),
            *("--reasoning-parser", gateway.reasoning_parser),
            *(() if keys is None else ("--api-key-file", keys)),
            *(() if vllm_key is None else ("--vllm-api-key-file", vllm_key)),
            *(("--enable-per-request-metrics",) if gateway.enable_per_request_metrics else ()),
            *(("--reuse-port",) if several else ()),
            *_SUPERVISED,
        ),
    )


def _memory_flags(group: WorkerGroup, sizes: Sizes) -> tuple[str, ...]:
    """The size of the KV pool or, where the worker finds that out, what it may use in all."""
    if sizes.kv_cache_memory_bytes is None:
        return ("--gpu-memory-utilization", str(group.gpu_memory_utilization))
    return ("--kv-cache-memory-bytes", str(sizes.kv_cache_memory_bytes))


def _tier_flags(group: WorkerGroup) -> tuple[str, ...]:
    """All workers of a host are given the same."""
    tier = group.kv_tier
    if not tier.wanted:
        return ()
    memory = ("--kv-tier-memory-bytes", str(tier.memory_bytes))
    if tier.disk_path is None:
        return memory
    disk = ("--kv-tier-disk-path", str(tier.disk_path))
    return (*memory, *disk, "--kv-tier-disk-bytes", str(tier.disk_bytes))


def _model_flags(model: ModelAsked) -> tuple[str, ...]:
    return (
        *("--dtype", model.dtype, "--load-format", model.load_format, "--seed", str(model.seed)),
        *("--block-size", str(model.block_size)),
        *_length_flag(model),
    )


def _length_flag(model: ModelAsked) -> tuple[str, ...]:
    length = model.max_model_len
    return () if length is None else ("--max-model-len", str(length))
