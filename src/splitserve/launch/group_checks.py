"""Whether a group of workers, by itself, makes sense. Errors name the key's path."""

from splitserve.errors import ConfigError
from splitserve.launch.checks import check_value, one_of
from splitserve.launch.group import (
    AUTO_CONNECTOR,
    CONNECTORS,
    DEVICES,
    ENGINES,
    ROLES,
    VLLM,
    WorkerGroup,
)
from splitserve.launch.tier_checks import check_tier
from splitserve.launch.vllm_checks import check_vllm_group, check_vllm_keys_unused
from splitserve.transfer.registry import connectors_for

SHARE_RULE = "must be above 0 and at most 1"


def check_group(path: str, group: WorkerGroup) -> None:
    """Raises ConfigError that names the first wrong key below ``path``."""
    one_of(f"{path}.role", group.role, ROLES)
    one_of(f"{path}.engine", group.engine, (*ENGINES, VLLM))
    one_of(f"{path}.device", group.device, DEVICES)
    one_of(f"{path}.connector", group.connector, CONNECTORS)
    if group.engine == VLLM:
        check_vllm_group(path, group)
    else:
        check_vllm_keys_unused(path, group)
        check_fit(f"{path}.", group.engine, group.device, group.connector)
        check_shards(f"{path}.tensor_parallel_size", group.tensor_parallel_size, group.device)
        _check_tier(path, group)
    _check_numbers(path, group)
    _check_devices(path, group)
    repeated = len(set(group.cores)) != len(group.cores)
    check_value(f"{path}.cores", list(group.cores), not repeated, "names a core twice")


def check_fit(prefix: str, engine: str, device: str, connector: str) -> None:
    """Raises ConfigError unless the three, each right by itself, go together.

    ``prefix`` stands before the name of the setting that is wrong.
    """
    if engine == "fake" and device != "cpu":
        raise ConfigError(
            f"{prefix}device {device!r}: the fake engine has no use for a GPU; use cpu"
        )
    fitting = connectors_for(device)
    if connector not in (AUTO_CONNECTOR, *fitting):
        raise ConfigError(
            f"{prefix}connector {connector!r} does not reach memory of device {device!r}; "
            f"use {' or '.join(map(repr, fitting))}, or leave it at {AUTO_CONNECTOR!r}"
        )


def check_shards(name: str, count: int, device: str) -> None:
    """Raises ConfigError unless a worker of ours on ``device`` can have ``count`` shards; ``name``
    is the setting's."""
    rule = f'splits native workers on the CPU only; engine = "{VLLM}" spreads one over GPUs'
    check_value(name, count, count <= 1 or device == "cpu", rule)


def _check_tier(path: str, group: WorkerGroup) -> None:
    caching = group.enable_prefix_caching
    check_tier(lambda key: f"{path}.{key}", group.kv_tier, caching)


def _check_numbers(path: str, group: WorkerGroup) -> None:
    for key, value in (
        ("count", group.count),
        ("kv_cache_memory_bytes", group.kv_cache_memory_bytes),
        ("tensor_parallel_size", group.tensor_parallel_size),
        ("max_num_seqs", group.max_num_seqs),
        ("max_num_batched_tokens", group.max_num_batched_tokens),
        ("fake.num_blocks", group.fake.num_blocks),
        ("fake.num_kv_heads", group.fake.num_kv_heads),
    ):
        check_value(f"{path}.{key}", value, value is None or value > 0, "must be positive")
    share = group.gpu_memory_utilization
    check_value(f"{path}.gpu_memory_utilization", share, 0 < share <= 1, SHARE_RULE)
    for key, cost in (
        ("step_ms", group.fake.step_ms),
        ("prefill_us_per_token", group.fake.prefill_us_per_token),
        ("decode_us_per_seq", group.fake.decode_us_per_seq),
    ):
        check_value(f"{path}.fake.{key}", cost, cost >= 0, "must not be negative")
    grace_s = group.drain_grace_s
    check_value(f"{path}.drain_grace_s", grace_s, grace_s >= 0, "must not be negative")


def _check_devices(path: str, group: WorkerGroup) -> None:
    numbers, key = list(group.devices), f"{path}.devices"
    if not numbers:
        return
    check_value(key, numbers, group.device == "cuda", 'names GPUs and needs device = "cuda"')
    check_value(key, numbers, min(numbers) >= 0, "must not be negative")
    each = group.tensor_parallel_size
    share = "one GPU" if each == 1 else f"{each} GPUs"
    rule = f"must name {share} for each of {group.count} workers"
    check_value(key, numbers, len(numbers) == group.count * each, rule)
