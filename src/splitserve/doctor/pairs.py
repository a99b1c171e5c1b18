"""Which worker would hand KV to which, how, and why so. Pure."""

from typing import Final

from splitserve.doctor.findings import Pair
from splitserve.launch.commands.vllm_transfer import UCX_TLS_ON_CPU
from splitserve.launch.group import AUTO_CONNECTOR, VLLM, WorkerGroup
from splitserve.launch.naming import NamedWorker, named_workers
from splitserve.launch.topology import Topology

_PATHS_OF_VLLM: Final = {
    "MooncakeConnector": "mooncake",
    "NixlConnector": "nixl",
    "NixlPullConnector": "nixl",
    "NixlPushConnector": "nixl",
}
"""vLLM's connectors that move bytes as one of ours does."""

_WHY: Final = {
    "cuda_ipc": "both pools are on GPUs of this host: one copy, from GPU to GPU",
    "mooncake": "Mooncake's engine: over TCP for workers of ours, as its settings say for vLLM's",
    "nixl": "UCX takes RDMA, CUDA IPC or a copy between processes, else TCP",
    "shm": "both pools are in memory of this host: one copy",
    "tcp": "sockets, for workers that do not share a host",
}


def pairs_of(topology: Topology) -> tuple[Pair, ...]:
    """Every prefill worker with every decode worker."""
    workers = list(named_workers(topology))
    return tuple(
        _pair(prefill, decode)
        for prefill in workers
        for decode in workers
        if (prefill.group.role, decode.group.role) == ("prefill", "decode")
    )


def _pair(prefill: NamedWorker, decode: NamedWorker) -> Pair:
    group = prefill.group
    vllm = group.engine == VLLM
    connector = group.chosen_kv_connector if vllm else group.chosen_connector
    path = _PATHS_OF_VLLM.get(connector, "") if vllm else connector
    return Pair(
        prefill=prefill.name,
        decode=decode.name,
        engine=group.engine,
        connector=connector,
        path=path,
        on_gpu=group.device == "cuda",
        why=_why(group, path),
    )


def _why(group: WorkerGroup, path: str) -> str:
    vllm = group.engine == VLLM
    asked = group.kv_connector is not None if vllm else group.connector != AUTO_CONNECTOR
    reason = _WHY.get(path, "vLLM's own; it is not measured here")
    if vllm and path == "nixl" and group.device == "cpu" and not group.attached:
        reason += f" (UCX_TLS is {group.env.get('UCX_TLS', UCX_TLS_ON_CPU)} for it)"
    return f"{'asked for' if asked else 'by itself'}: {reason}"
