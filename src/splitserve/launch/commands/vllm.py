"""Command lines of vLLM instances, and the addresses under which the gateway knows them.

vLLM knows nothing of our status pipe and starts processes of its own: ``processes/guard.py`` runs
it, says when it answers, and ends all of it.
"""

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from splitserve.errors import ConfigError
from splitserve.launch.commands.vllm_transfer import HOST, kv_role, transfer_of
from splitserve.launch.group import WorkerGroup
from splitserve.launch.spec import PARENT_PID, STATUS_FD, ProcessSpec, WorkerSlot, thread_limits
from splitserve.router.workers.vllm.dialects.registry import dialect_for
from splitserve.router.workers.vllm.settings import SCHEME

_PRIORITIES: Final = "--scheduling-policy"
_TIMES: Final = "--enable-per-request-metrics"


def worker_process(slot: WorkerSlot) -> ProcessSpec:
    """A guarded ``vllm serve`` on 127.0.0.1. Raises ConfigError for a model that vLLM cannot read,
    and when the connector needs a fact that nobody gave."""
    group, transfer = slot.group, transfer_of(slot)
    url = f"http://{HOST}:{slot.port}"
    return ProcessSpec(
        name=slot.name,
        role=group.role,
        address=instance_address(slot.name, group, url, transfer.facts),
        cores=slot.cores,
        env={**_environment(slot), **transfer.env, **group.env},
        argv=(
            *(slot.paths.python, "-m", "splitserve.processes.guard"),
            *("--status-fd", STATUS_FD, "--parent-pid", PARENT_PID),
            *("--url", url, "--within-s", str(group.startup_timeout_s)),
            *(("--cores", ",".join(map(str, slot.cores))) if slot.cores else ()),
            *(("--api-key-file", slot.api_key_file) if slot.api_key_file else ()),
            *("--", *group.command_words, "serve", _readable(slot)),
            *("--host", HOST, "--port", str(slot.port)),
            *_flags(slot),
            *(("--kv-transfer-config", json.dumps(transfer.config)) if transfer.config else ()),
            *group.args,
        ),
    )


def instance_address(
    name: str, group: WorkerGroup, url: str, known: Mapping[str, str | int] | None = None
) -> str:
    """``vllm+http://...`` with all that the gateway cannot ask the instance. ``known`` facts give
    way to the group's own.

    Raises ConfigError when the connector's dialect needs a fact that is in neither.
    """
    facts = {**(known or {}), **group.facts}
    if group.role != "colocated":
        needs = dialect_for(group.kv_transfer()).needs.get(group.role, ())
        missing = [fact for fact in needs if fact not in facts]
        if missing:
            raise ConfigError(
                f"{name}: {group.chosen_kv_connector} needs {', '.join(missing)}; add them to the "
                "group's facts"
            )
    query: dict[str, str | int] = {"name": name, "role": group.role}
    if group.chosen_kv_connector:
        connector = group.chosen_kv_connector
        query |= {"connector": connector, "kv_role": kv_role(connector, group.role)}
    if group.kv_connector_extra_config:
        query["kv_connector_extra_config"] = json.dumps(group.kv_connector_extra_config)
    seats = group.max_num_seqs if group.attached else group.sizes.max_num_seqs
    query |= {} if seats is None else {"max_num_seqs": seats}
    query |= {"priorities": 1} if _takes_priorities(group) else {}
    query |= {"per_request_metrics": 1} if _TIMES in group.args else {}
    return f"{SCHEME}{url.rstrip('/')}?{urlencode({**query, **facts})}"


def _takes_priorities(group: WorkerGroup) -> bool:
    words = " ".join(group.args).replace("=", " ")
    return f"{_PRIORITIES} priority" in words


def _readable(slot: WorkerSlot) -> str:
    if not slot.checkpoint:
        raise ConfigError(
            f"model.name {slot.model.name!r} is a GGUF file, which vLLM does not read: give a hub "
            "id or a folder with safetensors in it (docs/operations.md says how to make one)"
        )
    return slot.checkpoint


def _flags(slot: WorkerSlot) -> tuple[str, ...]:
    model, group = slot.model, slot.group
    length, batched, block = (
        model.max_model_len,
        group.max_num_batched_tokens,
        group.chosen_block_size,
    )
    return (
        *("--served-model-name", model.served_as, "--dtype", model.dtype),
        *("--load-format", model.load_format, "--seed", str(model.seed)),
        *(("--max-model-len", str(length)) if length is not None else ()),
        *(("--block-size", str(block)) if block is not None else ()),
        *("--max-num-seqs", str(group.sizes.max_num_seqs)),
        *(("--max-num-batched-tokens", str(batched)) if batched is not None else ()),
        *("--tensor-parallel-size", str(group.tensor_parallel_size)),
        *_memory_flags(group),
        f"--{'' if group.enable_prefix_caching else 'no-'}enable-prefix-caching",
    )


def _memory_flags(group: WorkerGroup) -> tuple[str, ...]:
    pool_bytes = group.sizes.kv_cache_memory_bytes
    if pool_bytes is None:
        return ("--gpu-memory-utilization", str(group.gpu_memory_utilization))
    return ("--kv-cache-memory-bytes", str(pool_bytes))


def _environment(slot: WorkerSlot) -> dict[str, str]:
    offline = {"HF_HUB_OFFLINE": "1"} if slot.checkpoint.startswith("/") else {}
    if slot.group.device == "cpu":
        # The cores are those that the guard has: vLLM would else choose some by itself.
        return {**offline, "VLLM_CPU_OMP_THREADS_BIND": "nobind", **thread_limits(len(slot.cores))}
    own = [int(number) for number in slot.device.removeprefix("cuda:").split(",")]
    # A GPU can open the memory of another only in a process that sees both.
    others = [number for number in slot.gpus if number not in own]
    return {**offline, "CUDA_VISIBLE_DEVICES": ",".join(map(str, [*own, *others]))}
