"""Findings to begin from: a machine and links with nothing amiss."""

from dataclasses import replace
from typing import Any

from splitserve.doctor.findings import (
    DeploymentReport,
    Gpu,
    Handoffs,
    Link,
    Machine,
    ModelKV,
    NumaNode,
    Pair,
)

GIB = 1 << 30
CPU = ("cpu", "cpu")
MODEL = ModelKV("m", kv_token_bytes=100_000, max_model_len=16_384, weight_bytes=GIB)
H200 = Gpu(0, "H200", 140 * GIB, 139 * GIB)


def machine(**changes: Any) -> Machine:
    sound = Machine(
        host="h",
        kernel="6.1",
        cpu="c",
        cores=(0, 1, 2, 3),
        cpus=4,
        load=0.5,
        numa=(NumaNode(0, (0, 1, 2, 3)),),
        memory_bytes=16 * GIB,
        available_bytes=12 * GIB,
        swap_bytes=0,
        shm_bytes=8 * GIB,
        shm_free_bytes=8 * GIB,
        governors=("performance",),
        open_files=1 << 20,
        locked_bytes=8 << 20,
        networks=("lo", "eth0"),
        rdma=(),
        gpus=(),
        ucx_tls=None,
        ucx_net_devices=None,
        nixl_ways=("shm", "tcp"),
        hub_cache="/cache",
        hub_cache_there=True,
        versions={"splitserve": "1", "nixl": "1.5", "vllm": None},
    )
    return replace(sound, **changes)


def link(path: str = "shm", ends: tuple[str, str] = CPU, **changes: Any) -> Link:
    return replace(Link(path, *ends, "measured", 4.0, 0.1, 5.0), **changes)


def links() -> tuple[Link, ...]:
    """Of a host without GPUs."""
    return (
        link("memcpy", gb_per_s=8.0, latency_ms=0.0, first_ms=0.0),
        link("socket", gb_per_s=2.0, first_ms=0.0),
        link("shm", gb_per_s=6.0),
        link("tcp", gb_per_s=1.5),
        link("nixl", gb_per_s=3.0, way="shm"),
    )


def pair(**changes: Any) -> Pair:
    return replace(Pair("prefill-0", "decode-0", "native", "shm", "shm", False, "w"), **changes)


def deployment(**changes: Any) -> DeploymentReport:
    sound = DeploymentReport(
        kind="deployment",
        url="http://h:1",
        ready=True,
        reason="",
        warnings=(),
        version="1",
        models=("m",),
        workers=(),
        links=(),
        handoffs=Handoffs(0, 0, 0.0, {}),
        clock=None,
        advice=(),
    )
    return replace(sound, **changes)
