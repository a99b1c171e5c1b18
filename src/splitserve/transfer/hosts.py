"""What this host is and has, as far as the way between two pools depends on it."""

import os
from pathlib import Path
from typing import Final

from splitserve.protocol.whereabouts import Whereabouts

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE: Final = Path("/proc/self/ns/pid")
_INFINIBAND: Final = Path("/sys/class/infiniband")


def whereabouts() -> Whereabouts:
    """Those of this process."""
    try:
        container = str(_PID_NAMESPACE.readlink())
    except OSError:
        container = ""
    return Whereabouts(host_id(), f"{container} {os.geteuid()}", has_rdma())


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
