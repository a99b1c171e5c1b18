"""A group of equal workers, as a topology has it. ``group_checks`` says what is right in it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from splitserve.engine.device import Sizes, parse_device, sizes_on
from splitserve.launch.sizes import ByteSize
from splitserve.protocol.control import DRAIN_GRACE_S
from splitserve.tier.config import TierConfig
from splitserve.transfer.registry import choose_connector

ROLES = ("colocated", "prefill", "decode")
ENGINES = ("native", "fake")
"""Those that run inside a worker process of ours."""

VLLM: Final = "vllm"
DEVICES = ("cpu", "cuda")
AUTO_CONNECTOR = "auto"
CONNECTORS = (AUTO_CONNECTOR, "shm", "tcp", "nixl", "mooncake", "cuda_ipc")

_NIXL_BLOCK_ON_CUDA: Final = 128
"""Fewer, larger reads: NIXL's cost on GPUs is by the block."""


class FakeCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the fake engine takes, and the size and shape of its pool."""

    step_ms: float = 0.0
    prefill_us_per_token: float = 0.0
    decode_us_per_seq: float = 0.0
    num_blocks: int = 1024
    num_kv_heads: int = 1


class WorkerGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``count`` equal workers. ``cores`` empty means a share of what other groups leave, or all
    cores for workers on GPUs. ``devices`` names the GPUs of the workers, one after another; empty
    means the lowest that nobody else has. What is None is chosen by the device
    (``engine/device.py``), and so is ``connector`` auto. ``gpu_memory_utilization`` is the share of
    its GPU's memory that a worker may use altogether; it is read where ``kv_cache_memory_bytes`` is
    None. ``tensor_parallel_size`` is how many shards of the model a worker has: GPUs of vLLM's, and
    pools of one process of ours, which is on the CPU then.

    The ``kv_tier_*`` keys are read by workers of ours on the CPU: sizes of what all workers of the
    host keep of KV beside their pools, in memory and in the folder ``kv_tier_disk_path``. 0 and
    None: without that level.

    ``drain_grace_s`` is how long a worker's running requests may go on when it is restarted; what
    is left then goes on at another. ``fake`` is read by ``engine = "fake"`` only.

    What follows ``fake`` is read by ``engine = "vllm"`` only. ``command`` starts vLLM, ``args`` are
    handed to ``vllm serve`` as they are, ``env`` is added to its environment. ``kv_connector`` is
    vLLM's name of how KV moves; None is NixlConnector in a split and nothing in ``colocated``.
    ``port`` and ``side_channel_port`` are those of the first worker, None finds free ones.
    ``block_size`` None is vLLM's own choice, 128 for NIXL on GPUs. ``url`` are instances that run
    already, which are used and not started; ``facts`` tell what the connector's dialect has to know
    of an instance.
    """

    role: str = "colocated"
    count: int = 1
    engine: str = "native"
    device: str = "cpu"
    devices: tuple[int, ...] = ()
    cores: tuple[int, ...] = ()
    connector: str = "auto"
    kv_cache_memory_bytes: ByteSize | None = None
    gpu_memory_utilization: float = 0.9
    tensor_parallel_size: int = 1
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool = True
    kv_tier_memory_bytes: ByteSize = ByteSize(0)
    kv_tier_disk_path: str | None = None
    kv_tier_disk_bytes: ByteSize = ByteSize(0)
    drain_grace_s: float = DRAIN_GRACE_S
    fake: FakeCosts = FakeCosts()
    command: str | tuple[str, ...] = "vllm"
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    kv_connector: str | None = None
    kv_connector_extra_config: dict[str, Any] = {}
    kv_load_failure_policy: str = "recompute"
    port: int | None = None
    side_channel_port: int | None = None
    block_size: int | None = None
    startup_timeout_s: float = 1800.0
    url: tuple[str, ...] = ()
    facts: dict[str, str | int] = {}

    @property
    def sizes(self) -> Sizes:
        """With those of the device where none was asked for."""
        return sizes_on(
            parse_device(self.device).kind,
            self.max_num_seqs,
            self.max_num_batched_tokens,
            self.kv_cache_memory_bytes,
        )

    @property
    def kv_tier(self) -> TierConfig:
        path = self.kv_tier_disk_path
        return TierConfig(
            self.kv_tier_memory_bytes,
            None if path is None else Path(path),
            self.kv_tier_disk_bytes,
        )

    @property
    def chosen_connector(self) -> str:
        return choose_connector(self.device) if self.connector == AUTO_CONNECTOR else self.connector

    @property
    def attached(self) -> bool:
        """Its workers run already, whoever started them."""
        return bool(self.url)

    @property
    def workers(self) -> int:
        return len(self.url) or self.count

    @property
    def command_words(self) -> tuple[str, ...]:
        return (self.command,) if isinstance(self.command, str) else self.command

    @property
    def chosen_kv_connector(self) -> str:
        """Empty for none."""
        if self.kv_connector is None:
            return "" if self.role == "colocated" else "NixlConnector"
        return self.kv_connector

    @property
    def chosen_block_size(self) -> int | None:
        nixl = self.chosen_kv_connector.startswith("Nixl") and not self.attached
        if self.block_size is None and self.device == "cuda" and nixl:
            return _NIXL_BLOCK_ON_CUDA
        return self.block_size

    def kv_transfer(self) -> Mapping[str, Any]:
        """What names the dialect: ``kv_connector`` and its own settings; empty without."""
        if not self.chosen_kv_connector:
            return {}
        extra = self.kv_connector_extra_config
        named = {"kv_connector": self.chosen_kv_connector}
        return {**named, "kv_connector_extra_config": extra} if extra else named
