"""What one worker process was asked to be."""

from dataclasses import dataclass, field
from pathlib import Path

from splitserve.protocol.control import DRAIN_GRACE_S
from splitserve.protocol.gate import GateFiles
from splitserve.tier.config import TierConfig


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Field names are those of ``splitserve worker``'s flags. Times in seconds, sizes in bytes.

    What is None is chosen by the device (see ``engine/device.py``), and so is connector ``auto``.
    ``cores`` pins the process and sizes its compute pool; empty leaves both to the system.
    ``drain_grace_s`` is how long running work may go on after SIGTERM.
    The ``kv_tier_*`` are of all workers of the host together; 0 and None: without that level.
    ``tensor_parallel_size`` is how many shards of the model are in the process, each with a pool.
    The ``fake_*`` fields are the fake engine's cost model and pool.
    """

    model: str
    role: str
    name: str
    listen: str
    engine: str = "native"
    connector: str = "auto"
    dtype: str = "auto"
    device: str = "cpu"
    tensor_parallel_size: int = 1
    max_model_len: int | None = None
    block_size: int = 16
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool = True
    kv_tier_memory_bytes: int = 0
    kv_tier_disk_path: Path | None = None
    kv_tier_disk_bytes: int = 0
    cores: tuple[int, ...] = ()
    load_format: str = "auto"
    seed: int = 0
    drain_grace_s: float = DRAIN_GRACE_S
    fake_step_s: float = 0.0
    fake_prefill_s_per_token: float = 0.0
    fake_decode_s_per_seq: float = 0.0
    fake_num_blocks: int = 1024
    fake_num_kv_heads: int = 1
    gate: GateFiles = field(default_factory=GateFiles)

    @property
    def kv_tier(self) -> TierConfig:
        return TierConfig(
            self.kv_tier_memory_bytes, self.kv_tier_disk_path, self.kv_tier_disk_bytes
        )
