"""The worker processes of a deployment that the lab started, found from outside.

A launcher starts every worker as the leader of a process group, with a log that is named after it.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from splitserve.lab.arms.descendants import descendants

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Worker:
    """``name`` as the launcher has it, ``prefill-0``."""

    name: str
    pid: int

    def signal(self, number: int) -> None:
        """To it and to all that it started. Nothing happens where it has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def worker_of(pids: Iterable[int], role: str) -> Worker | None:
    """The first worker of ``role`` among ``pids``; None where there is none."""
    found = sorted((name, pid) for pid, name in _workers(pids).items() if _role(name) == role)
    return Worker(*found[0]) if found else None


def is_replaced(worker: Worker, launcher: int) -> bool:
    """Whether another process runs in the place of ``worker``."""
    now = _workers(descendants(launcher))
    return any(name == worker.name and pid != worker.pid for pid, name in now.items())


def _workers(pids: Iterable[int]) -> dict[int, str]:
    return {pid: name for pid in pids if (name := _name(pid))}


def _name(pid: int) -> str:
    """Empty for what leads no group, has ended, or is not ours to look at."""
    with suppress(OSError):
        if os.getpgid(pid) == pid:
            log = (_PROC / str(pid) / "fd" / "1").readlink().name
            return log.removesuffix(".log") if _role(log.removesuffix(".log")) else ""
    return ""


def _role(name: str) -> str:
    match = re.fullmatch(r"(prefill|decode|colocated)-\d+", name)
    return match[1] if match else ""
