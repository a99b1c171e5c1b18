"""This machine, read from the kernel's files."""

import os
import platform
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from splitserve.doctor.findings import Machine, NumaNode
from splitserve.doctor.gpus import find_gpus
from splitserve.doctor.versions import versions
from splitserve.launch.facts import available_bytes, cgroup_room_bytes
from splitserve.transfer.nixl.path import open_ways

_ROOT: Final = Path("/")


def gather(root: Path = _ROOT, environ: Mapping[str, str] = os.environ) -> Machine:
    """``root`` is where /proc, /sys and /dev are looked for."""
    meminfo = root / "proc/meminfo"
    known = memory_lines(_text(meminfo))
    shm_bytes, shm_free_bytes = _space(root / "dev/shm")
    cache = hub_cache(environ)
    return Machine(
        host=platform.node(),
        kernel=platform.release(),
        cpu=_cpu_name(_text(root / "proc/cpuinfo")),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        cpus=_cpus(_text(root / "proc/cpuinfo")),
        load=_load(_text(root / "proc/loadavg")),
        numa=_numa(root / "sys/devices/system/node"),
        memory_bytes=known.get("MemTotal", 0),
        available_bytes=min(available_bytes(meminfo), cgroup_room_bytes(root / "sys/fs/cgroup")),
        swap_bytes=known.get("SwapTotal", 0) - known.get("SwapFree", 0),
        shm_bytes=shm_bytes,
        shm_free_bytes=shm_free_bytes,
        governors=_governors(root / "sys/devices/system/cpu"),
        open_files=_limit(resource.RLIMIT_NOFILE),
        locked_bytes=_limit(resource.RLIMIT_MEMLOCK),
        networks=_names(root / "sys/class/net"),
        rdma=_rdma(root / "sys/class/infiniband"),
        gpus=find_gpus(environ, root / "dev"),
        ucx_tls=environ.get("UCX_TLS"),
        ucx_net_devices=environ.get("UCX_NET_DEVICES"),
        nixl_ways=tuple(open_ways("cpu")),
        hub_cache=str(cache),
        hub_cache_there=cache.is_dir(),
        versions=versions(),
    )


def hub_cache(environ: Mapping[str, str]) -> Path:
    """Where the Hugging Face hub's client keeps models, by the variables that it reads."""
    if own := environ.get("HF_HUB_CACHE"):
        return Path(own).expanduser()
    if home := environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def memory_lines(meminfo: str) -> dict[str, int]:
    """Bytes by name, of proc(5)'s lines that are in KiB."""
    found = {}
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[0].isdigit():
            found[name] = int(words[0]) * 1024
    return found


def core_numbers(text: str) -> tuple[int, ...]:
    """A kernel's list, as ``0-3,8``. What is no number is left out."""
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdigit() and (not dash or last.isdigit()):
            cores += range(int(first), int(last if dash else first) + 1)
    return tuple(cores)


def _numa(nodes: Path) -> tuple[NumaNode, ...]:
    found = []
    for folder in nodes.glob("node*"):
        number = folder.name.removeprefix("node")
        if number.isdigit():
            found.append(NumaNode(int(number), core_numbers(_text(folder / "cpulist"))))
    return tuple(sorted(found, key=lambda node: node.number))


def _governors(cpus: Path) -> tuple[str, ...]:
    """Each that some core has, once."""
    files = cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")
    return tuple(sorted({said for file in files if (said := _text(file))}))


def _rdma(cards: Path) -> tuple[str, ...]:
    """Active ports as UCX names them, ``mlx5_0:1``."""
    return tuple(
        sorted(
            f"{state.parents[2].name}:{state.parent.name}"
            for state in cards.glob("*/ports/*/state")
            if "ACTIVE" in _text(state)
        )
    )


def _names(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(entry.name for entry in folder.iterdir()))
    except OSError:
        return ()


def _cpu_name(cpuinfo: str) -> str:
    lines = cpuinfo.splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _cpus(cpuinfo: str) -> int:
    """0 where the kernel does not tell."""
    return sum(line.startswith("processor") for line in cpuinfo.splitlines())


def _load(loadavg: str) -> float:
    """Of the last minute; 0 where the kernel does not tell."""
    try:
        return float(loadavg.partition(" ")[0])
    except ValueError:
        return 0.0


def _space(folder: Path) -> tuple[int, int]:
    """Size and free space of the file system there; zeros without one."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0, 0
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _limit(kind: int) -> int | None:
    soft, _ = resource.getrlimit(kind)
    return None if soft == resource.RLIM_INFINITY else soft


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
