"""Processes on this machine.

Each has its own session, so that Ctrl-C in a terminal reaches the launcher only, and writes to one
log file. Start from the main thread: see lifecycle.end_with_parent.
"""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from splitserve.errors import UnavailableError
from splitserve.launch.spec import PARENT_PID, STATUS_FD, ProcessSpec
from splitserve.lifecycle import StatusReport, describe_exit, parse_report

_TAIL_BYTES: Final = 64 * 1024


class LocalHost:
    """``log_dir`` takes one ``NAME.log`` per process; it must exist."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir

    async def start(self, spec: ProcessSpec) -> "LocalProcess":
        read_fd, write_fd = os.pipe()
        filled = {STATUS_FD: str(write_fd), PARENT_PID: str(os.getpid())}
        try:
            with self._open_log(spec.name) as log:
                process = await asyncio.create_subprocess_exec(
                    *(filled.get(part, part) for part in spec.argv),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=asyncio.subprocess.STDOUT,
                    env={**os.environ, **spec.env},
                    pass_fds=(write_fd,),
                    start_new_session=True,
                )
        except OSError as error:
            os.close(read_fd)
            raise UnavailableError(f"cannot start {spec.argv[0]}: {error.strerror}") from error
        finally:
            os.close(write_fd)
        return LocalProcess(process, read_fd)

    def log_path(self, name: str) -> str:
        return str(self._log_dir / f"{name}.log")

    def _open_log(self, name: str) -> BinaryIO:
        return Path(self.log_path(name)).open("ab")

    def logs(self, name: str, lines: int) -> list[str]:
        try:
            with Path(self.log_path(name)).open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return []
        return text.splitlines()[-lines:]


class LocalProcess:
    """A RunningProcess. ``status_fd`` is the read end of its status pipe, owned from now on."""

    def __init__(self, process: asyncio.subprocess.Process, status_fd: int) -> None:
        self._process = process
        self._status_fd = status_fd
        self._group_ended = False

    @property
    def pid(self) -> int:
        return self._process.pid

    async def report(self) -> StatusReport:
        line = await self._status_line()
        if not line:
            return StatusReport(ready=False, reason=describe_exit(await self.wait()))
        try:
            return parse_report(line)
        except ValueError as error:
            return StatusReport(ready=False, reason=str(error))

    async def wait(self) -> int:
        code = await self._process.wait()
        # Helpers that the process left behind would hold memory and ports for nobody.
        self.kill()
        self._group_ended = True
        return code

    def alive(self) -> bool:
        return self._process.returncode is None

    def stop(self) -> None:
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        if not self._group_ended:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def _status_line(self) -> bytes:
        """The one line, or nothing when the pipe closes without."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._status_fd, "rb")
        )
        try:
            return await reader.readline()
        finally:
            transport.close()
