"""From what was asked and what the machine has to exactly what will be started. Pure.

Cores and GPUs are shared out, memory is added up and compared, addresses are chosen. Whatever is
found to be wrong here is found before any process starts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.errors import ConfigError
from splitserve.launch.addresses import exposure_warning
from splitserve.launch.checks import check_value
from splitserve.launch.commands import COMMANDS
from splitserve.launch.commands.native import gateway_process
from splitserve.launch.commands.vllm import instance_address
from splitserve.launch.cores import share_cores
from splitserve.launch.devices import gpu_numbers, share_devices
from splitserve.launch.naming import NamedWorker, named_workers
from splitserve.launch.numbering import share_ports
from splitserve.launch.sizes import format_size
from splitserve.launch.spec import Paths, ProcessSpec, WorkerSlot
from splitserve.launch.topology import VLLM, Topology, WorkerGroup
from splitserve.loading import load

_VLLM_BLOCK_ON_CPU: Final = 128
"""vLLM's own choice there."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """``cores`` are those this process may use; ``memory_bytes`` is what is available now;
    ``has_key`` says whether the environment holds an API key. ``gpus`` None: not known.
    ``free_ports`` are at least as many as ``ports_needed`` says."""

    cores: tuple[int, ...]
    memory_bytes: int
    has_key: bool = False
    gpus: int | None = None
    free_ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What of a model decides how much memory it takes and how it can be split.

    ``kv_token_bytes`` is the KV of one token over all layers in the dtype asked for.
    ``weight_bytes`` is the size of its files: no worker takes less. ``checkpoint`` is the folder or
    hub id by which engines of others know it; empty when they cannot read it. ``num_kv_heads`` 0:
    not known.
    """

    kv_token_bytes: int
    max_model_len: int
    weight_bytes: int
    checkpoint: str = ""
    num_kv_heads: int = 0


@dataclass(frozen=True, slots=True)
class PlannedWorker:
    """A worker with what its memory amounts to.

    ``device`` is ``cpu`` or ``cuda:N``. ``kv_tokens`` fit into its pool together; None when the
    worker finds that out at its start.
    """

    process: ProcessSpec
    group: WorkerGroup
    device: str
    kv_tokens: int | None


@dataclass(frozen=True, slots=True)
class AttachedWorker:
    """One that runs already. ``address`` is for the gateway."""

    name: str
    role: str
    url: str
    address: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that will be started, and the ``attached`` workers that will be used."""

    topology: Topology
    gateways: tuple[ProcessSpec, ...]
    workers: tuple[PlannedWorker, ...]
    model: ModelFacts
    warnings: tuple[str, ...]
    asks_for_keys: bool
    attached: tuple[AttachedWorker, ...] = ()

    @property
    def gateway(self) -> ProcessSpec:
        """The first; the others are like it."""
        return self.gateways[0]

    @property
    def processes(self) -> tuple[ProcessSpec, ...]:
        return (*(worker.process for worker in self.workers), *self.gateways)


def resolve(topology: Topology, machine: MachineFacts, model: ModelFacts, paths: Paths) -> Plan:
    """The plan.

    Raises ConfigError for cores this process may not use, GPUs that are not there or shared too
    far, a length beyond the model's, shards that its KV heads cannot be shared out to, and more
    memory than is available.
    """
    _check_length(topology, model)
    _check_shards(topology, model)
    _check_memory(topology, machine, model)
    asks_for_keys = machine.has_key or topology.gateway.api_key_file is not None
    exposure = None if asks_for_keys else exposure_warning(topology.gateway.host)
    named = list(named_workers(topology))
    workers, warnings = _launched(topology, machine, model, paths, named)
    attached = tuple(
        AttachedWorker(
            one.name, one.group.role, one.url, instance_address(one.name, one.group, one.url)
        )
        for one in named
        if one.url
    )
    addresses = [worker.process.address for worker in workers]
    addresses += [worker.address for worker in attached]
    return Plan(
        topology=topology,
        asks_for_keys=asks_for_keys,
        gateways=tuple(
            gateway_process(topology, paths.python, addresses, number)
            for number in range(topology.gateway.processes)
        ),
        workers=workers,
        attached=attached,
        model=model,
        warnings=tuple(
            filter(None, (*warnings, exposure, *_small_pools(topology, workers, model)))
        ),
    )


def _launched(
    topology: Topology,
    machine: MachineFacts,
    model: ModelFacts,
    paths: Paths,
    named: Sequence[NamedWorker],
) -> tuple[tuple[PlannedWorker, ...], list[str]]:
    """The workers that will be started, with warnings."""
    groups = [group for group in topology.workers if not group.attached]
    devices = share_devices(groups, machine.gpus)
    shares, warnings = share_cores(groups, machine.cores)
    gpus = gpu_numbers(devices)
    ports = share_ports(groups, machine.free_ports, topology.gateway.port)
    started = [one for one in named if not one.url]
    workers = []
    for one, device, cores, (port, side) in zip(started, devices, shares, ports, strict=True):
        slot = WorkerSlot(
            one.name,
            topology.model,
            one.group,
            device,
            cores,
            paths,
            gpus=gpus,
            port=port,
            side_channel_port=side,
            checkpoint=model.checkpoint,
            api_key_file=topology.gateway.vllm_api_key_file,
        )
        process = load(COMMANDS[one.group.engine])(slot)
        kv_tokens = _kv_tokens(topology, one.group, model)
        workers.append(PlannedWorker(process, one.group, device, kv_tokens))
    return tuple(workers), warnings


def itemsize(dtype: str) -> int:
    """Bytes of one number. ``auto`` is a 16-bit type."""
    return 4 if dtype == "float32" else 2


def _kv_tokens(topology: Topology, group: WorkerGroup, model: ModelFacts) -> int | None:
    block_size, pool_bytes = topology.model.block_size, group.sizes.kv_cache_memory_bytes
    if group.engine == VLLM:
        block_size = group.chosen_block_size or _VLLM_BLOCK_ON_CPU
    if group.engine == "fake":
        return group.fake.num_blocks * block_size
    if pool_bytes is None:
        return None
    return pool_bytes // (model.kv_token_bytes * block_size) * block_size


def _check_length(topology: Topology, model: ModelFacts) -> None:
    asked = topology.model.max_model_len
    if asked is not None and asked > model.max_model_len:
        raise ConfigError(
            f"model.max_model_len: {asked} is more than the model's own {model.max_model_len}"
        )


def _check_shards(topology: Topology, model: ModelFacts) -> None:
    """vLLM itself knows how it can split a model."""
    for number, group in enumerate(topology.workers):
        heads = group.fake.num_kv_heads if group.engine == "fake" else model.num_kv_heads
        count = group.tensor_parallel_size
        rule = f"must divide the number of KV heads, {heads}"
        right = group.engine == VLLM or heads % count == 0
        check_value(f"workers[{number}].tensor_parallel_size", count, right, rule)


def _check_memory(topology: Topology, machine: MachineFacts, model: ModelFacts) -> None:
    """Only host memory: what a GPU holds is known to the worker that opens it."""
    on_host = [
        group
        for group in topology.workers
        if group.device == "cpu" and group.engine != "fake" and not group.attached
    ]
    weights = model.weight_bytes * sum(group.count for group in on_host)
    pools = sum((group.sizes.kv_cache_memory_bytes or 0) * group.count for group in on_host)
    # One for all workers of the host; it fills while they run.
    tier = max((group.kv_tier_memory_bytes for group in topology.workers), default=0)
    if weights + pools + tier > machine.memory_bytes:
        asked = [f"KV pools of {format_size(pools)}", f"weights of {format_size(weights)}"]
        asked += [f"a KV tier of {format_size(tier)}"] if tier else []
        raise ConfigError(
            f"workers: {' and '.join(asked)} are more than the "
            f"{format_size(machine.memory_bytes)} of memory available; lower "
            f"{'kv_tier_memory_bytes, ' if tier else ''}kv_cache_memory_bytes or the number of "
            "workers"
        )


def _small_pools(
    topology: Topology, workers: tuple[PlannedWorker, ...], model: ModelFacts
) -> Iterator[str]:
    limit = topology.model.max_model_len or model.max_model_len
    for worker in workers:
        if worker.kv_tokens is not None and worker.kv_tokens < limit:
            yield (
                f"{worker.process.name}: its KV pool holds {worker.kv_tokens} tokens, less than "
                f"one request of the greatest length ({limit}); longer requests will be refused"
            )
