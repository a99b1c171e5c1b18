"""How one vLLM instance moves KV: its ``--kv-transfer-config``, environment, and what of it the
gateway has to know. One table by connector."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from splitserve.launch.spec import WorkerSlot

HOST: Final = "127.0.0.1"

UCX_TLS_ON_CPU: Final = "tcp,shm"
"""Without a GPU to look for; on GPUs UCX chooses by itself, NVLink above all."""

_ROLES: Final = {"prefill": "kv_producer", "decode": "kv_consumer"}
_ONE_WAY: Final = frozenset(
    {
        "LMCacheConnectorV1",
        "MoRIIOConnector",
        "MooncakeConnector",
        "NixlConnector",
        "NixlPullConnector",
        "NixlPushConnector",
    }
)
"""Connectors that are told who gives and who takes; the others both store and load."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """``config`` is empty for an instance that moves nothing."""

    config: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str | int] = field(default_factory=dict)


def transfer_of(slot: WorkerSlot) -> Transfer:
    group = slot.group
    named = group.kv_transfer()
    if not named:
        return Transfer()
    own = _OWN.get(group.chosen_kv_connector, _nothing)(slot)
    buffer = {"kv_buffer_device": "cpu"} if group.device == "cpu" else {}
    config = {
        **named,
        "kv_role": kv_role(group.chosen_kv_connector, group.role),
        "kv_load_failure_policy": group.kv_load_failure_policy,
        **buffer,
        **own.config,
    }
    return Transfer(config, own.env, own.facts)


def kv_role(connector: str, role: str) -> str:
    """vLLM's word for ``role``."""
    return _ROLES.get(role, "kv_both") if connector in _ONE_WAY else "kv_both"


def engine_id(slot: WorkerSlot) -> str:
    """Different for each instance of each deployment."""
    return f"{slot.paths.run_dir.rpartition('/')[2]}-{slot.name}"


def _nothing(slot: WorkerSlot) -> Transfer:
    del slot
    return Transfer()


def _nixl(slot: WorkerSlot) -> Transfer:
    """Without an engine id of ours: vLLM draws a new one for each life, by which decode notices
    that what it knows of prefill's memory is no longer so."""
    env = {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": HOST,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(slot.side_channel_port),
        **({"UCX_TLS": UCX_TLS_ON_CPU} if slot.group.device == "cpu" else {}),
    }
    facts: dict[str, str | int] = {
        "side_channel_host": HOST,
        "side_channel_port": slot.side_channel_port,
        "tp_size": slot.group.tensor_parallel_size,
    }
    return Transfer({}, env, facts)


def _nixl_push(slot: WorkerSlot) -> Transfer:
    """Decode is asked before prefill has answered, so that its engine id must be known before."""
    plain, name = _nixl(slot), engine_id(slot)
    if slot.group.role == "decode":
        return plain
    return Transfer({"engine_id": name}, plain.env, {**plain.facts, "engine_id": name})


def _mooncake(slot: WorkerSlot) -> Transfer:
    name, port = engine_id(slot), slot.side_channel_port
    facts: dict[str, str | int] = {
        "engine_id": name,
        "bootstrap_addr": f"http://{HOST}:{port}",
        "tp_size": slot.group.tensor_parallel_size,
    }
    return Transfer({"engine_id": name}, {"VLLM_MOONCAKE_BOOTSTRAP_PORT": str(port)}, facts)


def _offloading(slot: WorkerSlot) -> Transfer:
    env = {
        "VLLM_P2P_SIDE_CHANNEL_HOST": HOST,
        "VLLM_P2P_SIDE_CHANNEL_PORT": str(slot.side_channel_port),
    }
    return Transfer({}, env, {"p2p_host": HOST, "p2p_port": slot.side_channel_port})


_OWN: Final[Mapping[str, Callable[[WorkerSlot], Transfer]]] = {
    "MooncakeConnector": _mooncake,
    "NixlConnector": _nixl,
    "NixlPullConnector": _nixl,
    "NixlPushConnector": _nixl_push,
    "OffloadingConnector": _offloading,
}
