"""What each arm is, as far as it can be known before it runs."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from splitserve.errors import ConfigError
from splitserve.lab.plan.config_diff import Config, Scalar
from splitserve.lab.plan.rules.brief import ratio_of
from splitserve.lab.plan.study import PD, PROXY, Arm, Facts, Model, Study
from splitserve.launch.sizes import ByteSize
from splitserve.launch.topology import VLLM, Topology, WorkerGroup, read_topology

_MODEL_FACTS: Final = ("revision", "tokenizer", "dtype", "quantization", "max_model_len")
_WORKER_FACTS: Final = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "max_num_batched_tokens",
)


@dataclass(frozen=True, slots=True)
class Resources:
    """``cores`` None: all that the machine lets the lab use. ``gpus`` counts each GPU once."""

    gpus: int
    cores: int | None

    def text(self) -> str:
        if self.gpus:
            cores = f" and {self.cores} cores" if self.cores else ""
            return f"{self.gpus} GPU{'s' * (self.gpus > 1)}{cores}"
        return "all cores" if self.cores is None else f"{self.cores} cores"


@dataclass(frozen=True, slots=True)
class PlannedArm:
    """One arm, or one value of an arm that has several. ``label`` is its name in runs and tables.

    ``topology`` is None for a running URL. ``config`` is what the plan knows of its effective
    configuration; at run time the servers say the rest. ``model`` is what it is said to serve.
    """

    label: str
    arm: Arm
    topology: Topology | None
    resources: Resources
    config: Config
    model: Model

    @property
    def family(self) -> str:
        return self.arm.family

    @property
    def started(self) -> bool:
        """By the lab, which then stops it too."""
        return self.topology is not None


def plan_arms(study: Study, folder: Path) -> tuple[PlannedArm, ...]:
    """All arms in the order of the plan, chunked rows once per size. Reads topologies below
    ``folder``. Raises ConfigError that names the arm's key."""
    planned: list[PlannedArm] = []
    for number, arm in enumerate(study.arms):
        base = study.arm(arm.base) if arm.base else None
        file = arm.topology or (base.topology if base and arm.url is None else None)
        path = f"arms[{number}].topology"
        topology = topology_at(path, folder, file) if file else None
        if topology is None:
            planned.append(_running(arm, study.model))
        elif arm.chunk_tokens:
            planned += [
                started(f"{arm.name}@{size}", arm, with_chunks(topology, size))
                for size in arm.chunk_tokens
            ]
        else:
            planned.append(started(arm.name, arm, topology))
    return tuple(planned)


def topology_at(path: str, folder: Path, file: str) -> Topology:
    """The topology in ``file`` below ``folder``. ConfigError names key ``path`` and the file."""
    try:
        return read_topology(folder / file)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def started(label: str, arm: Arm, topology: Topology) -> PlannedArm:
    """The arm that the lab makes of ``topology``."""
    config = dict(config_of(topology))
    config["gateway.enable_per_request_metrics"] = True
    if arm.family == PROXY:
        config["proxy.name"] = "pass-through"
    elif arm.family == PD:
        config["proxy.name"] = "splitserve"
    asked = topology.model
    dtype = None if asked.dtype == "auto" else asked.dtype
    model = Model(name=asked.name, dtype=dtype, max_model_len=asked.max_model_len)
    return PlannedArm(label, arm, topology, resources_of(topology), config, model)


def with_chunks(topology: Topology, size: int) -> Topology:
    """``topology`` with another chunk size and nothing else changed."""
    groups = (
        msgspec.structs.replace(group, max_num_batched_tokens=size) for group in topology.workers
    )
    return msgspec.structs.replace(topology, workers=tuple(groups))


def with_ratio(path: str, topology: Topology, ratio: str) -> Topology:
    """``topology`` with other numbers of prefill and decode workers and nothing else changed."""
    counts = dict(zip(("prefill", "decode"), ratio_of(ratio), strict=True))
    roles = Counter(group.role for group in topology.workers)
    pinned = any(group.cores or group.devices or group.attached for group in topology.workers)
    if roles != Counter(prefill=1, decode=1) or pinned:
        raise ConfigError(
            f"{path}: the pd arm's topology needs one group of prefill and one of decode workers, "
            "without cores, devices and url, for the lab to change their numbers"
        )
    groups = (
        msgspec.structs.replace(group, count=counts[group.role]) for group in topology.workers
    )
    return msgspec.structs.replace(topology, workers=tuple(groups))


def resources_of(topology: Topology) -> Resources:
    """GPUs that are named once count once, however many workers share them."""
    named: set[int] = set()
    unnamed = 0
    for group in topology.workers:
        if group.device == "cuda":
            named |= set(group.devices)
            unnamed += 0 if group.devices else group.workers * group.tensor_parallel_size
    pinned = all(group.cores for group in topology.workers)
    cores = {core for group in topology.workers for core in group.cores}
    return Resources(len(named) + unnamed, len(cores) if pinned else None)


def config_of(topology: Topology) -> Config:
    """The flat configuration that ``topology`` asks for."""
    config = {**_flat("model", topology.model), **_flat("gateway", topology.gateway)}
    several = Counter(group.role for group in topology.workers)
    numbers: Counter[str] = Counter()
    for group in topology.workers:
        role = group.role
        scope = f"{role}[{numbers[role]}]" if several[role] > 1 else role
        numbers[role] += 1
        config |= _flat(scope, group)
        config[f"{scope}.connector"] = _connector(group)
        if group.engine != VLLM:
            # Asked for or the default of the device: the same configuration.
            sizes = group.sizes
            config[f"{scope}.max_num_seqs"] = sizes.max_num_seqs
            config[f"{scope}.max_num_batched_tokens"] = sizes.max_num_batched_tokens
    return config


def plain_size(value: object) -> int:
    """A ByteSize as the number that it is; msgspec asks for it."""
    if not isinstance(value, ByteSize):
        raise NotImplementedError(f"no plan has a value of type {type(value)}")
    return int(value)


def _connector(group: WorkerGroup) -> str:
    if group.role == "colocated":
        return ""
    return group.chosen_kv_connector if group.engine == VLLM else group.chosen_connector


def _running(arm: Arm, planned: Model) -> PlannedArm:
    facts = arm.facts or Facts()
    said = msgspec.structs.asdict(facts)
    told = {key: said[key] for key in _MODEL_FACTS if said[key] is not None}
    model = msgspec.structs.replace(planned, name=facts.model or planned.name, **told)
    config: dict[str, Scalar] = {
        **_flat("model", model),
        **{f"settings.{key}": value for key, value in facts.settings.items()},
    }
    roles = ("prefill", "decode") if arm.family == PD else ("colocated",)
    for role in roles:
        config |= {f"{role}.{key}": said[key] for key in _WORKER_FACTS}
    if arm.family == PD:
        config |= {"prefill.count": facts.prefill, "decode.count": facts.decode}
        config |= {f"{role}.connector": facts.connector for role in roles}
        config |= {f"{role}.connector_version": facts.connector_version for role in roles}
    if arm.family in (PD, PROXY):
        config |= {"proxy.name": facts.proxy, "proxy.version": facts.proxy_version}
    return PlannedArm(
        arm.name, arm, None, Resources(facts.gpus, facts.cores or None), config, model
    )


def _flat(scope: str, value: Any) -> dict[str, Scalar]:
    """``value`` as one entry per leaf; lists are one leaf, written as JSON."""
    plain = msgspec.to_builtins(value, enc_hook=plain_size)
    if isinstance(plain, dict):
        return {
            k: v for key, inner in plain.items() for k, v in _flat(f"{scope}.{key}", inner).items()
        }
    if isinstance(plain, list | tuple):
        return {scope: msgspec.json.encode(plain).decode()}
    return {scope: plain}
