"""One process to be started, and what its command is made from."""

from dataclasses import dataclass, field
from typing import Final

from splitserve.launch.topology import ModelAsked, WorkerGroup

STATUS_FD: Final = "{status-fd}"
"""Stands in ``argv`` for the number of the status pipe; the host fills it in."""

PARENT_PID: Final = "{parent-pid}"
"""Stands in ``argv`` for the pid of whoever starts the process; the host fills it in."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """``name`` is unique in its deployment. ``env`` is added to the environment of the launcher.

    ``address`` is where the process will listen. ``cores`` is its share; empty means all. A process
    whose ``argv`` holds STATUS_FD says on that pipe when it is ready. ``drain_s`` is how long it
    may work on after SIGTERM before it ends.
    """

    name: str
    role: str
    argv: tuple[str, ...]
    address: str
    cores: tuple[int, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    drain_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Paths:
    """``run_dir`` takes the sockets; ``python`` is the interpreter that runs Splitserve."""

    run_dir: str
    python: str


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """One worker's place in a deployment: all that an engine's command is made from.

    ``device`` is ``cpu`` or ``cuda:N``, with a comma between several. The rest is for engines of
    others: ``gpus`` are those of all workers, ``port`` and ``side_channel_port`` are the worker's
    own, ``checkpoint`` is what ModelFacts has, ``api_key_file`` what the gateway takes its key for
    the instance from.
    """

    name: str
    model: ModelAsked
    group: WorkerGroup
    device: str
    cores: tuple[int, ...]
    paths: Paths
    gpus: tuple[int, ...] = ()
    port: int = 0
    side_channel_port: int = 0
    checkpoint: str = ""
    api_key_file: str | None = None


def thread_limits(threads: int) -> dict[str, str]:
    """The environment that holds numeric libraries to ``threads`` threads each; 0 sets no limit."""
    return {
        variable: str(threads)
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        if threads
    }
