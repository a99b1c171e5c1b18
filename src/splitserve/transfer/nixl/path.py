"""Which way bytes will probably take between two pools. UCX chooses, and NIXL does not say what."""

import os
from pathlib import Path
from typing import Final, Literal

from splitserve.transfer.base import Route
from splitserve.transfer.hosts import has_rdma, text_of

Way = Literal["shm", "cuda_ipc", "rc", "tcp"]
"""``shm``: one copy by the kernel between processes of a host (UCX calls it cma). ``rc``: RDMA."""

_ALIASES: Final[dict[Way, tuple[str, ...]]] = {
    "shm": ("cma", "sm", "shm"),
    "cuda_ipc": ("cuda_ipc", "cuda"),
    "rc": ("rc", "rc_x", "rc_v", "rc_mlx5", "rc_verbs", "ib"),
    "tcp": ("tcp",),
}
_SHOWN: Final[dict[Way, str]] = {"rc": "rdma"}
"""What all connectors call a way, where that is something else."""

_YAMA: Final = Path("/proc/sys/kernel/yama/ptrace_scope")


def open_ways(device: str) -> list[Way]:
    """The ways that UCX may use here for a pool on ``device``, by its settings and by what there
    is, best first."""
    found: dict[Way, bool] = {
        "cuda_ipc": device.startswith("cuda"),
        "shm": device == "cpu" and _may_copy_between_processes(),
        "rc": has_rdma(),
        "tcp": True,
    }
    allowed = _setting()
    return [way for way, there in found.items() if there and _names(allowed, way)]


def likely_way(
    own_host: str, own_ways: list[Way], peer_host: str, peer_ways: list[Way]
) -> Way | None:
    """None where neither side's settings leave a way, or the hosts are unknown."""
    if not own_host or not peer_host:
        return None
    both = [way for way in own_ways if way in peer_ways]
    if own_host != peer_host:
        both = [way for way in both if way in ("rc", "tcp")]
    return both[0] if both else None


def likely_route(own_host: str, own_ways: list[Way], peer_host: str, peer_ways: list[Way]) -> Route:
    """``likely_way``, and why not the others."""
    way = likely_way(own_host, own_ways, peer_host, peer_ways)
    passed = {
        _SHOWN.get(one, one): _why_not(one, own_ways)
        for one in _ALIASES
        if one not in own_ways or one not in peer_ways
    }
    return Route("" if way is None else _SHOWN.get(way, way), passed)


def _why_not(way: Way, own_ways: list[Way]) -> str:
    """Why UCX may not take it between two workers of which one at least may not."""
    if way in own_ways:
        return "UCX may not take it at the peer"
    setting = _setting()
    if not _names(setting, way):
        return f"UCX_TLS={setting} forbids it"
    if way == "shm":
        return "UCX may not copy between processes: kernel.yama.ptrace_scope forbids it"
    return "UCX finds nothing for it here"


def _setting() -> str:
    return os.environ.get("UCX_TLS", "all")


def _names(setting: str, way: Way) -> bool:
    """Whether a value of UCX_TLS (``all``, a list, or ``^`` and a list of what not) lets it be."""
    names = setting.removeprefix("^").split(",")
    listed = "all" in names or any(name in _ALIASES[way] for name in names)
    return listed != setting.startswith("^")


def _may_copy_between_processes() -> bool:
    return text_of(_YAMA) in ("", "0") or os.geteuid() == 0
