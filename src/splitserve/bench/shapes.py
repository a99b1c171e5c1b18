"""The shapes that are measured: the same number of workers on the same cores."""

from typing import Final

from msgspec.structs import replace

from splitserve.launch.sizes import ByteSize
from splitserve.launch.topology import GatewayAsked, ModelAsked, Topology, WorkerGroup, checked

KV_BYTES: Final = ByteSize(512 * 1024 * 1024)

GROUP: Final = WorkerGroup(kv_cache_memory_bytes=KV_BYTES)


def split_shape(model: str, group: WorkerGroup = GROUP) -> Topology:
    """One prefill and one decode worker like ``group``."""
    return _topology(model, (_of(group, "prefill", 1), _of(group, "decode", 1)))


def colocated_shape(model: str) -> Topology:
    """Two workers that each do everything."""
    return _topology(model, (_of(GROUP, "colocated", 2),))


def _of(group: WorkerGroup, role: str, count: int) -> WorkerGroup:
    return replace(group, role=role, count=count)


def _topology(model: str, workers: tuple[WorkerGroup, ...]) -> Topology:
    return checked(
        Topology(model=ModelAsked(name=model), workers=workers, gateway=GatewayAsked(port=0))
    )
