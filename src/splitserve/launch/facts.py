"""What the plan needs to know of this machine and of the model."""

import os
import re
from pathlib import Path

from splitserve.launch.plan import MachineFacts, ModelFacts, itemsize
from splitserve.launch.ports import free_ports
from splitserve.launch.topology import ModelAsked
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.progress import Progress
from splitserve.modelstore.resolve import resolve

_CGROUP = Path("/sys/fs/cgroup")
_DEVICES = Path("/dev")
_GPU = re.compile(r"nvidia\d+")


def machine_facts(ports: int = 0) -> MachineFacts:
    """This process's cores and GPUs, the memory that is available to it now, and so many ports.

    Raises UnavailableError when there are not so many.
    """
    return MachineFacts(
        cores=tuple(sorted(os.sched_getaffinity(0))),
        has_key=bool(os.environ.get("SPLITSERVE_API_KEY", "").strip()),
        gpus=gpu_count(_DEVICES),
        free_ports=free_ports(ports),
        memory_bytes=min(available_bytes(Path("/proc/meminfo")), cgroup_room_bytes(_CGROUP)),
    )


def model_facts(asked: ModelAsked, progress: Progress) -> ModelFacts:
    """Of the model asked for, fetched first if it is not here yet: once, for all workers to find.

    Raises ConfigError or UnavailableError as the model store does.
    """
    return facts_of(asked, resolve(asked.name, progress=progress))


def facts_of(asked: ModelAsked, folder: ModelFolder) -> ModelFacts:
    """``folder`` is what the model's name led to."""
    return ModelFacts(
        kv_token_bytes=folder.kv_token_bytes(itemsize(asked.dtype)),
        max_model_len=folder.max_model_len(),
        weight_bytes=folder.weight_bytes(),
        checkpoint=_checkpoint(asked.name, folder),
        num_kv_heads=folder.num_kv_heads(),
    )


def _checkpoint(name: str, folder: ModelFolder) -> str:
    """For folders their absolute path, for hub ids the id."""
    if folder.format == "gguf":
        return ""
    return str(folder.path) if Path(name).expanduser().is_dir() else name


def gpu_count(devices: Path) -> int | None:
    """GPUs whose driver's device files are in ``devices``; None when it shows none there.

    Without asking CUDA, which takes seconds and memory on every GPU.
    """
    return sum(bool(_GPU.fullmatch(file.name)) for file in devices.glob("nvidia*")) or None


def available_bytes(meminfo: Path) -> int:
    """``MemAvailable`` of proc(5), which it gives in KiB."""
    for line in meminfo.read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def cgroup_room_bytes(root: Path) -> int:
    """What a container's limit leaves (cgroup v2), page cache counted as free; huge if no limit."""
    try:
        limit = (root / "memory.max").read_text(encoding="ascii").strip()
        used = int((root / "memory.current").read_text(encoding="ascii"))
        stat = (root / "memory.stat").read_text(encoding="ascii")
    except OSError:
        return 1 << 62
    if limit == "max":
        return 1 << 62
    cache = dict(line.split() for line in stat.splitlines()).get("inactive_file", "0")
    return max(0, int(limit) - used + int(cache))
