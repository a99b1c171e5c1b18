"""What a run ran on, before and after: named values as text."""

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Final

from splitserve import __version__
from splitserve.lab.plan.config_diff import Config

_VOLATILE: Final = ("host.load", "host.memory_available")
"""Recorded, and different at any two moments."""


def machine() -> dict[str, str]:
    """The machine of the lab, and of the arms that it starts."""
    seen = {
        "host.name": platform.node(),
        "host.kernel": platform.release(),
        "host.cpu": _cpu_model(),
        "host.cores": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
        "host.boot_id": _text(Path("/proc/sys/kernel/random/boot_id")),
        "host.gpu_driver": _text(Path("/proc/driver/nvidia/version")).partition("\n")[0],
        "host.load": _text(Path("/proc/loadavg")),
        "host.memory_available": _memory_available(),
        "software.lab": __version__,
        "software.python": platform.python_version(),
    }
    return {name: value for name, value in seen.items() if value}


def environment(config: Config, start: str) -> dict[str, str]:
    """Of one arm at one moment: the machine, its effective configuration, which start it is."""
    told = {f"arm.{key}": str(value) for key, value in config.items() if value is not None}
    return {**machine(), **told, "arm.start": start}


def changed(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    """Names of what must not have changed within a run, and did."""
    return tuple(
        name
        for name in sorted(before.keys() | after.keys())
        if name not in _VOLATILE and before.get(name) != after.get(name)
    )


def _cpu_model() -> str:
    lines = _text(Path("/proc/cpuinfo")).splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _memory_available() -> str:
    lines = _text(Path("/proc/meminfo")).splitlines()
    return next((line.partition(":")[2].strip() for line in lines if "MemAvailable" in line), "")


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""
