"""Plans of stand-in processes, and watching them."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from splitserve.launch.keep import Limits, State, Supervised
from splitserve.launch.plan import ModelFacts, Plan, PlannedWorker
from splitserve.launch.restart import RestartPolicy
from splitserve.launch.spec import PARENT_PID, STATUS_FD, ProcessSpec
from splitserve.launch.topology import ModelAsked, Topology, WorkerGroup

STAND_IN = Path(__file__).with_name("stand_in.py")
QUICK = Limits(stop_s=0.5, settle_s=0.2, restart=RestartPolicy(first_s=0.01))


def spec(name: str, kind: str, *arguments: str) -> ProcessSpec:
    argv = (sys.executable, str(STAND_IN), kind, STATUS_FD, PARENT_PID, *arguments)
    return ProcessSpec(name=name, role=kind, argv=argv, address="")


def plan_of(*workers: ProcessSpec, gateway: str = "gateway") -> Plan:
    return Plan(
        topology=Topology(model=ModelAsked(name="m"), workers=(WorkerGroup(),)),
        gateways=(spec("gateway", gateway),),
        workers=tuple(PlannedWorker(worker, WorkerGroup(), "cpu", 0) for worker in workers),
        model=ModelFacts(kv_token_bytes=1, max_model_len=1, weight_bytes=0),
        warnings=(),
        asks_for_keys=False,
    )


class Watcher:
    """Records changes and lets a test wait for the one it needs."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, State]] = []
        self._changed = asyncio.Event()

    def __call__(self, process: Supervised) -> None:
        self.seen.append((process.spec.name, process.state))
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def count(self, name: str, state: State) -> int:
        return self.seen.count((name, state))


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def children() -> set[int]:
    return {child.pid for child in psutil.Process(os.getpid()).children(recursive=True)}


def gone(pids: Iterable[int], within_s: float) -> bool:
    """Whether all have ended in time. They need not be children of ours."""
    deadline = time.monotonic() + within_s
    while any(is_running(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
