"""A real deployment for tests: worker processes, a gateway process, sockets between them."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import psutil

FAKE = ("--engine", "fake", "--block-size", "4", "--fake-num-blocks", "512")
"""Worker flags: an engine without a model."""

SLOW_PAIR = (
    (("prefill", "p0"), ("decode", "d0")),
    (
        *(*FAKE, "--fake-step-ms", "5", "--fake-prefill-us-per-token", "2000"),
        *("--max-num-batched-tokens", "32"),
    ),
)
"""Roles and worker flags: slow enough that a test can act in every state."""

PROGRAM = ("-m", "splitserve")

START_S = 60.0
SETTLE_S = 5.0
"""What issue and design promise: the ledger is back to free and cached within this time."""

_METRIC = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


@dataclass
class Process:
    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    facts: dict[str, Any]

    @property
    def pid(self) -> int:
        return self.popen.pid

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def freeze(self) -> None:
        self.popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.popen.send_signal(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None


@dataclass
class Cluster:
    """``workers`` by name; ``url`` of the gateway. ``worker_program`` is what python runs.
    ``own_flags`` are those of one worker alone, by its name."""

    model: str
    run_dir: Path
    worker_flags: Sequence[str]
    gateway_flags: Sequence[str] = ()
    worker_program: Sequence[str] = PROGRAM
    own_flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    workers: dict[str, Process] = field(default_factory=dict)
    gateway: Process | None = None

    @property
    def served(self) -> str:
        """What the gateway calls its model."""
        return Path(self.model).name

    @property
    def url(self) -> str:
        assert self.gateway is not None
        return f"http://127.0.0.1:{self.gateway.facts['port']}"

    def address(self, name: str) -> str:
        """Where others reach the worker."""
        return f"unix:{self.run_dir / name}.sock"

    def listens(self, name: str) -> str:
        """Where the worker listens."""
        return self.address(name)

    def environment(self, name: str) -> dict[str, str]:
        """What a worker's environment has beside ours."""
        del name
        return {}

    def launch_worker(self, role: str, name: str, *flags: str) -> "Starting":
        command = ["worker", self.model, "--role", role, "--name", name]
        command += ["--listen", self.listens(name), "--cores", self._core(name)]
        command += [*self.worker_flags, *self.own_flags.get(name, ()), *flags]
        program = self.worker_program
        return _launch(name, command, self.run_dir, program, self.environment(name))

    def _core(self, name: str) -> str:
        """One core per worker, in turn by the number in its name and its kind."""
        cores = sorted(os.sched_getaffinity(0))
        return str(cores[(int(name[1:]) + (name[0] == "d")) % len(cores)])

    def start_worker(self, role: str, name: str, *flags: str) -> Process:
        self.workers[name] = self.launch_worker(role, name, *flags).wait()
        return self.workers[name]

    def start_gateway(self, names: Sequence[str]) -> None:
        command = ["gateway", self.model, "--port", "0", *self.gateway_flags]
        for name in names:
            command += ["--worker", self.address(name)]
        self.gateway = _launch("gateway", command, self.run_dir).wait()
        self.wait_ready()

    def wait_ready(self) -> None:
        wait_until(self.ready, START_S, lambda: f"/ready stays {self.ready_answer().text}")

    def wait_linked(self) -> None:
        """Until no prompt need be computed by decode, however long: ready waits 5 s at most."""
        wait_until(self.unwarned, START_S, lambda: f"/ready warns: {self.ready_answer().text}")

    def unwarned(self) -> bool:
        return self.ready_answer().json()["warnings"] == []

    def ready(self) -> bool:
        return self.ready_answer().status_code == 200

    def ready_answer(self) -> httpx.Response:
        return httpx.get(f"{self.url}/ready", timeout=5)

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """(name, sorted labels) -> value."""
        found = {}
        for line in httpx.get(f"{self.url}/metrics", timeout=5).text.splitlines():
            match = _METRIC.match(line)
            if match:
                labels = tuple(sorted(re.findall(r'(\w+)="([^"]*)"', match[2] or "")))
                found[match[1], labels] = float(match[3])
        return found

    def total(self, name: str, **labels: str) -> float:
        """Sum of a metric over all series that carry ``labels``."""
        wanted = set(labels.items())
        return sum(
            v for (n, found), v in self.metrics().items() if n == name and wanted <= set(found)
        )

    def kv_blocks(self) -> dict[str, dict[str, int]]:
        """worker -> state -> blocks, as the gateway last heard."""
        blocks: dict[str, dict[str, int]] = {}
        for (name, labels), value in self.metrics().items():
            if name == "splitserve_kv_blocks":
                named = dict(labels)
                blocks.setdefault(named["worker"], {})[named["state"]] = int(value)
        return blocks

    def idle(self) -> bool:
        """Every worker's blocks are free or cached."""
        blocks = self.kv_blocks()
        return bool(blocks) and all(
            states["free"] + states["cached"] == sum(states.values()) for states in blocks.values()
        )

    def assert_settles(self, within_s: float = SETTLE_S) -> None:
        wait_until(self.idle, within_s, lambda: f"blocks are not given back: {self.kv_blocks()}")

    def stop(self) -> None:
        processes = [*self.workers.values(), *([self.gateway] if self.gateway else [])]
        for process in processes:
            if process.alive:
                process.thaw()
                process.popen.terminate()
        for process in processes:
            try:
                process.popen.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(
                    f"{process.name} ignored SIGTERM: {tail(process.log)}"
                ) from None


@dataclass
class Starting:
    """A process that was spawned and has not said yet that it is ready."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    status_fd: int

    def wait(self) -> Process:
        """Whoever is interrupted here leaves no process behind."""
        ready = False
        try:
            with os.fdopen(self.status_fd, "rb") as status:
                line = status.readline()
            facts = json.loads(line) if line else {"event": "ended without a word"}
            ready = facts["event"] == "ready"
        finally:
            if not ready:
                self.end()
        assert ready, f"{self.name}: {facts}; log: {tail(self.log)}"
        return Process(self.name, self.popen, self.log, facts)

    def end(self) -> None:
        """Nothing where it has ended already."""
        self.popen.kill()
        self.popen.wait()


def _launch(
    name: str,
    command: Sequence[str],
    run_dir: Path,
    program: Sequence[str] = PROGRAM,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Starting:
    read_fd, write_fd = os.pipe()
    log = run_dir / f"{name}.log"
    with log.open("ab") as out:
        popen = subprocess.Popen(
            [sys.executable, *program, *command, "--status-fd", str(write_fd)],
            env={**os.environ, **environment},
            pass_fds=(write_fd,),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    os.close(write_fd)
    return Starting(name, popen, log, read_fd)


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def wait_until(
    condition: Callable[[], bool], within_s: float, complaint: Callable[[], str]
) -> None:
    """Polls ``condition``; fails with ``complaint()`` when it does not come true in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {within_s} s: {complaint()}")
        time.sleep(0.02)


@contextmanager
def running(
    model: str,
    roles: Sequence[tuple[str, str]],
    worker_flags: Sequence[str] = (),
    gateway_flags: Sequence[str] = (),
    own_flags: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Iterator[Cluster]:
    """Workers given as (role, name) and a gateway; at the end nothing may be left running."""
    with tempfile.TemporaryDirectory(prefix="ss-") as run_dir:
        cluster = Cluster(model, Path(run_dir), worker_flags, gateway_flags, own_flags=own_flags)
        with started(cluster, roles):
            yield cluster


@contextmanager
def started(cluster: Cluster, roles: Sequence[tuple[str, str]]) -> Iterator[None]:
    """As ``running``, for a cluster that was made elsewhere."""
    starting: list[Starting] = []
    try:
        starting += [cluster.launch_worker(role, name) for role, name in roles]
        for spawned in starting:
            cluster.workers[spawned.name] = spawned.wait()
        cluster.start_gateway([name for _, name in roles])
        cluster.wait_linked()
        yield
    finally:
        try:
            cluster.stop()
        finally:
            for spawned in starting:
                spawned.end()
    left = leftovers(str(cluster.run_dir))
    assert not left, f"left running: {left}"


def leftovers(run_dir: str) -> list[str]:
    """Processes whose command line names the run directory."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(run_dir in c for c in command):
            found.append(" ".join(command))
    return found
