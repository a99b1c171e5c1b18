"""Runs a server that is not ours: says when it answers, passes a stop on, leaves nothing behind.

``python -m splitserve.processes.guard --status-fd N --url http://127.0.0.1:8100 ... -- COMMAND``

A vLLM server knows nothing of our status pipe, starts processes of its own and does not end them
when it is killed. The guard leads the process group that all of them are in. It starts in
milliseconds and then sleeps; it has no part in what the server does.
"""

import argparse
import http.client
import logging
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final
from urllib.parse import urlsplit

from splitserve.clock import monotonic
from splitserve.errors import SplitserveError, UnavailableError
from splitserve.lifecycle import (
    EXIT_UNAVAILABLE,
    StatusPipe,
    describe_exit,
    pin_to_cores,
    reporting_failure,
)
from splitserve.logs import configure
from splitserve.secret_files import secret_of

log = logging.getLogger(__name__)

API_KEY: Final = "VLLM_API_KEY"
"""vLLM's own variable."""

_PROBE_EVERY_S: Final = 0.25
_PROBE_TIMEOUT_S: Final = 2.0
_OUR_SECRETS: Final = ("SPLITSERVE_API_KEY", "SPLITSERVE_SECRET", "SPLITSERVE_STATE_KEY")


@dataclass(frozen=True, slots=True)
class Guarded:
    """``url`` answers when the server is ready, which may take ``within_s``. ``api_key`` empty:
    it asks for none. With ``parent_pid`` all ends when that process does."""

    command: tuple[str, ...]
    url: str
    within_s: float
    cores: tuple[int, ...] = ()
    api_key: str = ""
    parent_pid: int | None = None


def run(guarded: Guarded, status: StatusPipe) -> int:
    """Returns the server's exit code, minus the signal's number when one killed it.

    Raises UnavailableError, told to ``status``, when the server cannot be started or does not
    become ready.
    """
    with reporting_failure(status):
        _lead_group()
        pin_to_cores(guarded.cores)
        parent_fd = None if guarded.parent_pid is None else _watch(guarded.parent_pid)
        server = _start(guarded)

        def pass_on(number: int, frame: FrameType | None) -> None:
            del frame
            server.send_signal(number)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, pass_on)
        return _follow(guarded, server, parent_fd, status)


def _follow(
    guarded: Guarded, server: "subprocess.Popen[bytes]", parent_fd: int | None, status: StatusPipe
) -> int:
    """Until the server has ended. Raises UnavailableError when that is before it was ready."""
    deadline, ready = monotonic() + guarded.within_s, False
    with selectors.DefaultSelector() as watched:
        watched.register(_watch(server.pid), selectors.EVENT_READ, server)
        if parent_fd is not None:
            watched.register(parent_fd, selectors.EVENT_READ, None)
        while True:
            for key, _ in watched.select(None if ready else _PROBE_EVERY_S):
                if key.data is None:
                    os.killpg(0, signal.SIGKILL)
                code = server.wait()
                if not ready:
                    raise UnavailableError(f"{guarded.command[0]} {describe_exit(code)}")
                return code
            if not ready and answers(guarded.url, guarded.api_key):
                ready = True
                keep_group_on(guarded.cores)
                log.info("%s answers", guarded.url)
                status.ready()
            elif not ready and monotonic() > deadline:
                server.kill()
                raise UnavailableError(
                    f"{guarded.command[0]} was not ready within {guarded.within_s:.0f} s"
                )


def keep_group_on(cores: Sequence[int]) -> None:
    """Moves every thread of this process group to ``cores``; none leaves them where they are.

    vLLM for CPUs with NIXL puts the work of all instances on the machine's last core by itself.
    """
    group = os.getpgid(0)
    for process in Path("/proc").iterdir() if cores else ():
        # What ends meanwhile needs no core.
        with suppress(ProcessLookupError, FileNotFoundError):
            if process.name.isdigit() and os.getpgid(int(process.name)) == group:
                for thread in (process / "task").iterdir():
                    os.sched_setaffinity(int(thread.name), cores)


def answers(url: str, api_key: str) -> bool:
    """Whether ``/health`` and ``/v1/models`` both answer 200."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        return all(_get(url, path, headers) == 200 for path in ("/health", "/v1/models"))
    except (OSError, http.client.HTTPException):
        return False


def _get(url: str, path: str, headers: Mapping[str, str]) -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port, timeout=_PROBE_TIMEOUT_S
    )
    try:
        connection.request("GET", path, headers=dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()


def _start(guarded: Guarded) -> "subprocess.Popen[bytes]":
    env = {name: value for name, value in os.environ.items() if name not in _OUR_SECRETS}
    if guarded.api_key:
        env[API_KEY] = guarded.api_key
    try:
        return subprocess.Popen(guarded.command, stdin=subprocess.DEVNULL, env=env)
    except OSError as error:
        raise UnavailableError(f"cannot start {guarded.command[0]}: {error.strerror}") from error


def _lead_group() -> None:
    """So that killing the group ends the server with all that it started, and nobody else."""
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)


def _watch(pid: int) -> int:
    """A descriptor that can be read from once that process has ended (pidfd_open(2))."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        raise UnavailableError(f"cannot watch process {pid}: {error.strerror}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; what follows ``--`` is the server's."""
    parser = argparse.ArgumentParser(prog="splitserve.processes.guard", allow_abbrev=False)
    parser.add_argument("--url", required=True)
    parser.add_argument("--within-s", type=float, required=True)
    parser.add_argument("--cores", default="")
    parser.add_argument("--api-key-file", type=Path)
    parser.add_argument("--status-fd", type=int)
    parser.add_argument("--parent-pid", type=int)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    configure("guard", "info", sys.stderr)
    status = StatusPipe(given.status_fd)
    try:
        with reporting_failure(status):
            key = secret_of("--api-key-file", given.api_key_file, API_KEY, os.environ, min_bytes=1)
        guarded = Guarded(
            command=tuple(given.command),
            url=given.url,
            within_s=given.within_s,
            cores=tuple(int(core) for core in given.cores.split(",") if core),
            api_key="" if key is None else key.decode(),
            parent_pid=given.parent_pid,
        )
        code = run(guarded, status)
    except SplitserveError as error:
        log.error("%s", error)
        return EXIT_UNAVAILABLE
    if code < 0:
        _die_of(-code)
    return code


def _die_of(number: int) -> None:
    """So that whoever waits for the guard is told how the server ended."""
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main())
