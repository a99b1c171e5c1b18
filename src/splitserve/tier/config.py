"""What a worker is asked to have of the tier. Pure."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TierConfig:
    """Sizes in bytes, for all workers of the host together; 0 and None: without that level.

    Workers that share a folder should be given the same size of it.
    """

    memory_bytes: int = 0
    disk_path: Path | None = None
    disk_bytes: int = 0

    @property
    def wanted(self) -> bool:
        return self.memory_bytes > 0 or self.disk_path is not None
