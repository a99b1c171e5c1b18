"""What this host is and has, as far as the way between two pools depends on it."""

from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_INFINIBAND: Final = Path("/sys/class/infiniband")


def host_id() -> str:
    """The same for all processes of one boot of one host; empty where that is unknown."""
    return text_of(_BOOT_ID)


def has_rdma() -> bool:
    """Whether a port of an RDMA device is up."""
    return any("ACTIVE" in text_of(state) for state in _INFINIBAND.glob("*/ports/*/state"))


def text_of(path: Path) -> str:
    """Stripped; empty where the file cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
