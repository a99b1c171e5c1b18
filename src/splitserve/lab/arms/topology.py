"""An arm that the lab starts and stops: ``splitserve up`` as a child process, as an operator would.

The child ends with the lab, in whatever way that ends, and everything the child started with it.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from splitserve.clock import monotonic
from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.arms.asking import live_config, not_serving, read_metrics, reset_prefix_cache
from splitserve.lab.arms.base import Described, Endpoint
from splitserve.lab.arms.descendants import descendants, living
from splitserve.lab.arms.ending import end
from splitserve.lab.arms.tied import tied_command
from splitserve.lab.arms.topology_text import topology_text
from splitserve.lab.arms.url import merged
from splitserve.lab.plan.arms import PlannedArm
from splitserve.launch.addresses import http_url
from splitserve.launch.ports import free_ports
from splitserve.launch.probe import ask_ready
from splitserve.launch.topology import VLLM, Topology
from splitserve.lifecycle import StartFailed, describe_exit

_POLL_S: Final = 0.05
_START_S: Final = 120.0
"""How long engines of ours may take; vLLM groups say their own."""

_SETTLE_S: Final = 10.0
"""How long a deployment that serves may still have something to remark."""

_STOP_S: Final = 60.0
_LOG_LINES: Final = 20


class TopologyArm:
    """Implements ``base.Arm``. ``folder`` takes the topology as started, and logs."""

    def __init__(self, planned: PlannedArm, folder: Path, reset_cache: bool) -> None:
        assert planned.topology is not None
        self.label = planned.label
        self._planned = planned.config
        self._topology = planned.topology
        self._folder = folder
        self._reset_cache = reset_cache
        self._started_as = ""
        self._left_behind = 0
        self._process: asyncio.subprocess.Process | None = None
        self._endpoint: Endpoint | None = None
        self._members: frozenset[int] = frozenset()

    @property
    def endpoint(self) -> Endpoint:
        if self._endpoint is None:
            raise UnavailableError(f"arm {self.label} is not running")
        return self._endpoint

    @property
    def members(self) -> frozenset[int]:
        """Process ids of all that was started, once it is ready."""
        return self._members

    @property
    def launcher(self) -> int | None:
        """Process id of what started all others; None while nothing runs."""
        return None if self._process is None else self._process.pid

    @property
    def left_behind(self) -> int:
        """How many processes the last stop found alive after their launcher had ended."""
        return self._left_behind

    async def start(self) -> None:
        (port,) = free_ports(1)
        gateway = msgspec.structs.replace(self._topology.gateway, port=port)
        topology = msgspec.structs.replace(self._topology, gateway=gateway)
        self._process = await self._launched(topology)
        self._endpoint = Endpoint(http_url(gateway.host, port), topology.model.served_as)
        try:
            await self._ready(self._process, gateway.host, port)
        except BaseException:
            await self.stop()
            raise
        self._members = descendants(self._process.pid) | {self._process.pid}
        # A lab that goes on after a crash counts from no beginning; process ids hardly recur.
        self._started_as = f"{self.label}#{self._process.pid}"

    async def describe(self) -> Described:
        live = await live_config(self.endpoint)
        planned = {key: value for key, value in self._planned.items() if key != "gateway.port"}
        return Described(merged(self.label, planned, live), live, self._started_as)

    async def metrics(self) -> dict[str, float]:
        return await read_metrics(self.endpoint)

    async def alive(self) -> str | None:
        gone = self._members - living(self._members)
        if gone:
            return f"{len(gone)} of its {len(self._members)} processes ended; see {self._log}"
        return await not_serving(self.endpoint)

    async def reset(self) -> None:
        if self._reset_cache:
            await reset_prefix_cache(self.endpoint)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        members = self._members | descendants(process.pid)
        await end(process, _STOP_S)
        # Workers are tied to their launcher; one that is left would be a fault, and is ended.
        left = living(members)
        self._left_behind = len(left)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def _log(self) -> Path:
        return self._folder / "up.log"

    async def _launched(self, topology: Topology) -> asyncio.subprocess.Process:
        file = self._folder / "topology.toml"
        command = (sys.executable, "-m", "splitserve", "up", str(file))
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file.write_text(topology_text(topology), encoding="utf-8")
            with self._log.open("wb") as log:
                return await asyncio.create_subprocess_exec(
                    *tied_command((*command, "--log-dir", str(self._folder / "logs"))),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=asyncio.subprocess.STDOUT,
                    # A Ctrl-C at the terminal is for the lab, which then stops its arms in order.
                    start_new_session=True,
                )
        except OSError as error:
            raise UnavailableError(f"arm {self.label} cannot be started: {error}") from error

    async def _ready(self, process: asyncio.subprocess.Process, host: str, port: int) -> None:
        """Until it serves and has nothing more to remark, or has served for ``_SETTLE_S``."""
        limit_s = self._start_limit_s()
        deadline, served_s = monotonic() + limit_s, None
        while True:
            if process.returncode is not None:
                raise self._failed(describe_exit(process.returncode))
            readiness = await ask_ready(host, port)
            if readiness.ready:
                served_s = served_s or monotonic()
                if not readiness.notes or monotonic() > served_s + _SETTLE_S:
                    return
            elif monotonic() > deadline:
                raise self._failed(f"it did not serve within {limit_s:g} s")
            await asyncio.sleep(_POLL_S)

    def _start_limit_s(self) -> float:
        own = [g.startup_timeout_s for g in self._topology.workers if g.engine == VLLM]
        return max([_START_S, *own])

    def _failed(self, reason: str) -> StartFailed:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
        said = next((line for line in reversed(lines) if line.startswith("error: ")), "")
        reason = said.removeprefix("error: ") or reason
        return StartFailed(f"arm {self.label}", reason, str(self._log), lines)


def check_started(planned: PlannedArm) -> None:
    """Raises ConfigError for a topology that the lab could not ask."""
    assert planned.topology is not None
    if planned.topology.gateway.api_key_file is not None:
        raise ConfigError(
            f"arm {planned.label}: gateway.api_key_file: a deployment of the lab's own is asked "
            "without a key; leave it out"
        )
