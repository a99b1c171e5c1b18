"""Host seam: starts processes somewhere and tells what becomes of them.

Implementations know nothing of roles, restarts or readiness of the whole.
"""

from typing import Protocol

from splitserve.launch.spec import ProcessSpec
from splitserve.lifecycle import StatusReport


class RunningProcess(Protocol):
    """One life of one process. It is in a process group of its own."""

    @property
    def pid(self) -> int: ...

    async def report(self) -> StatusReport:
        """What the process says of its start; failed, with a reason, when it ends unsaid."""
        ...

    async def wait(self) -> int:
        """Its exit code once it has ended; minus the signal's number when one killed it.

        Nothing of its group is left then. May be awaited from several places.
        """
        ...

    def alive(self) -> bool: ...

    def stop(self) -> None:
        """Asks it to end (SIGTERM). No effect on a process that has ended."""
        ...

    def kill(self) -> None:
        """Ends it and all its group at once. No effect on a process that has ended."""
        ...


class Host(Protocol):
    async def start(self, spec: ProcessSpec) -> RunningProcess:
        """Raises UnavailableError when the program cannot be started at all."""
        ...

    def log_path(self, name: str) -> str:
        """Where the output of the process called ``name`` goes, over all its lives."""
        ...

    def logs(self, name: str, lines: int) -> list[str]:
        """The last ``lines`` lines of that output."""
        ...
