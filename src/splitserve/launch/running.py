"""A topology, planned and run: the way in for everything that needs a deployment."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from splitserve.errors import ConfigError
from splitserve.launch.facts import machine_facts, model_facts
from splitserve.launch.hosts import HOSTS
from splitserve.launch.hosts.base import Host
from splitserve.launch.keep import Limits, OnChange, Supervised
from splitserve.launch.plan import ModelFacts, Plan, resolve
from splitserve.launch.ports import ports_needed
from splitserve.launch.programs import check_programs
from splitserve.launch.rundir import RunDirectory
from splitserve.launch.spec import Paths
from splitserve.launch.supervise import Deployment
from splitserve.launch.topology import Topology
from splitserve.lifecycle import StartFailed
from splitserve.loading import load
from splitserve.modelstore.progress import Silent


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan and the host to start it on."""

    plan: Plan
    host: Host


@contextmanager
def prepared(topology: Topology, model: ModelFacts, log_dir: Path | None) -> Iterator[Prepared]:
    """Plans ``topology`` for this machine, with a folder for its sockets that lasts for the block.

    Logs go to ``log_dir``, or to that same folder, which then stays if the block ends in
    StartFailed. Raises ConfigError and UnavailableError.
    """
    with RunDirectory() as run:
        logs = run.path if log_dir is None else _made(log_dir)
        machine = machine_facts(ports_needed(topology))
        plan = resolve(topology, machine, model, Paths(str(run.path), sys.executable))
        try:
            yield Prepared(plan, load(HOSTS["local"])(logs))
        except StartFailed:
            run.keep()
            raise


def _unheard(process: Supervised) -> None:
    """For those who look at ``Deployment.processes`` instead."""


@asynccontextmanager
async def running(
    topology: Topology,
    *,
    limits: Limits | None = None,
    log_dir: Path | None = None,
    on_change: OnChange = _unheard,
) -> AsyncIterator[Deployment]:
    """``topology``, started and ready within the block, stopped after it.

    Fetches the model if need be, showing nothing.
    """
    check_programs(topology)
    model = model_facts(topology.model, Silent())
    with prepared(topology, model, log_dir) as ready:
        async with Deployment(ready.plan, ready.host, on_change, limits or Limits()) as deployment:
            yield deployment


def _made(log_dir: Path) -> Path:
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"log-dir: cannot make {log_dir}: {error.strerror}") from error
    return log_dir
