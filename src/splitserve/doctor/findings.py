"""What the doctor found, as data. Sizes in bytes; a rate in GB/s is 10^9 bytes a second."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Level = Literal["note", "warning", "error"]

LinkState = Literal["measured", "missing", "failed", "wrong"]


@dataclass(frozen=True, slots=True)
class Advice:
    """``error``: something would not start or serve, or KV would arrive wrong. ``about`` is one
    word for scripts, ``says`` what is so, ``cure`` what to do about it."""

    level: Level
    about: str
    says: str
    cure: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """``index`` is the driver's number."""

    index: int
    name: str
    memory_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class NumaNode:
    """``cores`` are all of the node's."""

    number: int
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """``cores`` are those this process may use. ``load`` is how many threads lately ran or waited
    for a core, and ``cpus`` how many cores there are; both are of the whole machine.
    ``available_bytes`` is what a container's limit leaves. ``swap_bytes`` are in use.
    ``open_files`` and ``locked_bytes`` are this process's soft limits, None where there is none.
    ``rdma`` are active ports. ``gpus`` are those that CUDA_VISIBLE_DEVICES lets be seen.
    ``nixl_ways`` are those that UCX may take between two processes here for pools in host memory,
    best first. ``versions`` are None for what is not installed."""

    host: str
    kernel: str
    cpu: str
    cores: tuple[int, ...]
    cpus: int
    load: float
    numa: tuple[NumaNode, ...]
    memory_bytes: int
    available_bytes: int
    swap_bytes: int
    shm_bytes: int
    shm_free_bytes: int
    governors: tuple[str, ...]
    open_files: int | None
    locked_bytes: int | None
    networks: tuple[str, ...]
    rdma: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    ucx_tls: str | None
    ucx_net_devices: str | None
    nixl_ways: tuple[str, ...]
    hub_cache: str
    hub_cache_there: bool
    versions: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Link:
    """One path between two ends, ``cpu``, ``numaN`` or ``cuda:N``.

    ``path`` is ``memcpy`` (within one process), ``socket`` (plain, over loopback) or a connector.
    ``latency_ms`` is the time of one block, of 64 KiB. ``first_ms`` is from connecting to the first
    block in place. ``way`` is what the connector uses, as far as is known. ``why`` says why
    it is not ``measured``: ``missing`` here, ``failed``, or ``wrong``: other bytes arrived.
    """

    path: str
    source: str
    target: str
    state: LinkState
    gb_per_s: float = 0.0
    latency_ms: float = 0.0
    first_ms: float = 0.0
    way: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class ModelKV:
    """``kv_token_bytes`` is the KV of one token over all layers."""

    name: str
    kv_token_bytes: int
    max_model_len: int
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class PromptCost:
    """``ms`` is all of a prompt's KV over one path when nothing else goes on; workers send it layer
    by layer while they compute, so that less of it is waited for. ``of_target`` is its share of the
    TTFT target."""

    tokens: int
    kv_bytes: int
    path: str
    source: str
    target: str
    ms: float
    of_target: float


@dataclass(frozen=True, slots=True)
class PlannedWorker:
    """``kv_tokens`` None: found out at its start, or the model is not here. ``url`` is set for one
    that runs already."""

    name: str
    role: str
    engine: str
    device: str
    cores: tuple[int, ...]
    connector: str
    kv_tokens: int | None
    url: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt's KV goes from ``prefill`` to ``decode``, both of ``engine``. ``path`` is that of
    the links that were measured; empty for a connector that cannot be measured here."""

    prefill: str
    decode: str
    engine: str
    connector: str
    path: str
    on_gpu: bool
    why: str


@dataclass(frozen=True, slots=True)
class Port:
    """``must`` it be free (we will listen there) or open (somebody does)? ``right`` is whether it
    is so."""

    host: str
    number: int
    user: str
    purpose: str
    must: Literal["free", "open"]
    right: bool


@dataclass(frozen=True, slots=True)
class MachineReport:
    kind: Literal["machine"]
    machine: Machine
    links: tuple[Link, ...]
    advice: tuple[Advice, ...]


@dataclass(frozen=True, slots=True)
class TopologyReport:
    """``model`` None: it is not here. ``prompts`` has every measured path."""

    kind: Literal["topology"]
    topology: str
    ttft_target_ms: float
    machine: Machine
    links: tuple[Link, ...]
    model: ModelKV | None
    workers: tuple[PlannedWorker, ...]
    pairs: tuple[Pair, ...]
    ports: tuple[Port, ...]
    prompts: tuple[PromptCost, ...]
    advice: tuple[Advice, ...]


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The server's clock less ours, in seconds: true within ``offset_s`` ± ``error_s``."""

    offset_s: float
    error_s: float


@dataclass(frozen=True, slots=True)
class RunningWorker:
    """``kv_blocks`` by state; empty where the gateway does not know. ``breaker`` is ``closed`` for
    one that works."""

    name: str
    connected: bool
    breaker: str
    running: float
    waiting: float
    since_step_s: float
    kv_blocks: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunningLink:
    """A prefill worker that may write into a decode worker. ``way`` is empty where nobody tells;
    ``faster`` names one that could be taken instead."""

    prefill: str
    decode: str
    connector: str
    way: str = ""
    faster: str = ""


@dataclass(frozen=True, slots=True)
class Handoffs:
    """Since the gateway's start. ``exposed_ms`` is the mean wait for KV after the first token;
    ``fallbacks`` are steps down the failure ladder, by reason."""

    count: float
    kv_bytes: float
    exposed_ms: float
    fallbacks: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DeploymentReport:
    """``ready`` None: the server has no such page. ``clock`` None: it does not tell the time, or
    its clock was set meanwhile."""

    kind: Literal["deployment"]
    url: str
    ready: bool | None
    reason: str
    warnings: tuple[str, ...]
    version: str
    models: tuple[str, ...]
    workers: tuple[RunningWorker, ...]
    links: tuple[RunningLink, ...]
    handoffs: Handoffs
    clock: ClockOffset | None
    advice: tuple[Advice, ...]


Report = MachineReport | TopologyReport | DeploymentReport
