"""The two shapes the demo compares: the same number of workers on the same cores."""

from typing import Final

from splitserve.launch.sizes import ByteSize
from splitserve.launch.topology import GatewayAsked, ModelAsked, Topology, WorkerGroup, checked

KV_BYTES: Final = ByteSize(512 * 1024 * 1024)


def split_shape(model: str) -> Topology:
    """One prefill and one decode worker."""
    return _topology(model, (_group("prefill", 1), _group("decode", 1)))


def colocated_shape(model: str) -> Topology:
    """Two workers that each do everything."""
    return _topology(model, (_group("colocated", 2),))


def _group(role: str, count: int) -> WorkerGroup:
    return WorkerGroup(role=role, count=count, kv_cache_memory_bytes=KV_BYTES)


def _topology(model: str, workers: tuple[WorkerGroup, ...]) -> Topology:
    return checked(
        Topology(model=ModelAsked(name=model), workers=workers, gateway=GatewayAsked(port=0))
    )
