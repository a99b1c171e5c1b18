"""A process's life as its launcher sees it: started, ready or failed, asked to stop, gone.

A child tells its launcher once, with one JSON line on a pipe whose number it was given:
``{"event": "ready", ...}`` when it accepts and answers, ``{"event": "failed", "reason": ...}``
when it never will. The launcher asks a child to stop with SIGTERM. A child whose launcher dies,
in whatever way, is killed by the kernel.
"""

import ctypes
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Final

from splitserve.errors import ConfigError, SplitserveError, UnavailableError

EXIT_USAGE: Final = 2
"""A setting is wrong (ConfigError)."""

EXIT_UNAVAILABLE: Final = 3
"""Something outside is missing (UnavailableError)."""

EXIT_START_FAILED: Final = 4
"""A process that was to be started did not become ready."""

EXIT_INTERRUPTED: Final = 130
"""Stopped by Ctrl-C, cleanly or not (128 + SIGINT, as shells count it)."""

_PR_SET_PDEATHSIG: Final = 1

Fact = str | int | float


class StartFailed(SplitserveError):
    """A process did not become ready. ``log`` are the last lines it wrote to ``log_path``."""

    def __init__(self, name: str, reason: str, log_path: str, log: Sequence[str]) -> None:
        super().__init__(f"{name} did not start: {reason}")
        self.log_path = log_path
        self.log = tuple(log)


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What a child said of its start. ``facts`` came with ready, ``reason`` with failed."""

    ready: bool
    facts: Mapping[str, Fact] = field(default_factory=dict)
    reason: str = ""


class StatusPipe:
    """The child's end. Says one thing once; what is said later, or without a pipe, goes nowhere.

    ``fd`` is the write end inherited from the launcher, None when nobody asked to be told.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        if fd is not None:
            _check_open(fd)
            # Or a grandchild would hold the pipe open after this process is gone.
            os.set_inheritable(fd, False)

    def ready(self, **facts: Fact) -> None:
        """This process now accepts and answers. ``facts`` are what only it knows (its port)."""
        self._say({"event": "ready", **facts})

    def failed(self, reason: str) -> None:
        """This process will not become ready; ``reason`` is one line for people."""
        self._say({"event": "failed", "reason": " ".join(reason.split())})

    def _say(self, message: Mapping[str, Fact]) -> None:
        if self._fd is None:
            return
        # A launcher that is gone reads nothing; this process is about to end for the same reason.
        with suppress(BrokenPipeError):
            os.write(self._fd, json.dumps(message).encode() + b"\n")
        os.close(self._fd)
        self._fd = None


@contextmanager
def reporting_failure(status: StatusPipe) -> Iterator[None]:
    """Tells the launcher why the block ended, if it ended in one of our errors before ready."""
    try:
        yield
    except SplitserveError as error:
        status.failed(str(error))
        raise


def parse_report(line: bytes) -> StatusReport:
    """The launcher's end of StatusPipe. Raises ValueError on anything but one of its lines."""
    message: Any = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"not a status line: {line!r}")
    event = message.pop("event", None)
    if event == "ready":
        return StatusReport(ready=True, facts=message)
    if event == "failed":
        return StatusReport(ready=False, reason=str(message.get("reason", "")))
    raise ValueError(f"unknown event in status line: {line!r}")


def describe_exit(code: int) -> str:
    """``exited with code 1``, ``was killed by SIGKILL``; ``code`` as subprocess gives it."""
    if code >= 0:
        return f"exited with code {code}"
    return f"was killed by {signal.Signals(-code).name}"


def end_with_parent(parent_pid: int) -> None:
    """Has the kernel kill this process when its parent, ``parent_pid``, dies.

    Linux counts the death of the *thread* that started this process (prctl(2),
    PR_SET_PDEATHSIG): launchers start children from their main thread. Raises UnavailableError
    when the parent is gone already.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise UnavailableError(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    # The parent may have died before the call above.
    if os.getppid() != parent_pid:
        raise UnavailableError(f"the process that started this one ({parent_pid}) is gone")


def pin_to_cores(cores: Sequence[int]) -> None:
    """Restricts this process, and threads it starts later, to ``cores``; empty changes nothing.

    Raises ConfigError when the system does not offer one of them.
    """
    if not cores:
        return
    missing = sorted(set(cores) - os.sched_getaffinity(0))
    if missing:
        raise ConfigError(f"cores: {missing} are not among the cores this process may use")
    os.sched_setaffinity(0, cores)


class StopSignals:
    """Within the block, SIGTERM and Ctrl-C ask for a stop instead of ending the process.

    The first of either calls ``stop``; a second Ctrl-C calls ``abandon``, which by default ends
    the process at once with EXIT_INTERRUPTED; a SIGTERM that is not the first calls ``again``,
    which by default does nothing. All run in the main thread between two bytecodes: they must not
    block (``loop.call_soon_threadsafe(event.set)`` is what an event loop needs).
    """

    def __init__(
        self,
        stop: Callable[[], object],
        abandon: Callable[[], object] | None = None,
        again: Callable[[], object] = lambda: None,
    ) -> None:
        self._stop = stop
        self._abandon = abandon or _exit_interrupted
        self._again = again
        self._asked = False
        self._interrupted = False
        self._previous: dict[int, Any] = {}

    @property
    def exit_code(self) -> int:
        """What a process that then stopped cleanly exits with: 130 after Ctrl-C, else 0."""
        return EXIT_INTERRUPTED if self._interrupted else 0

    def __enter__(self) -> "StopSignals":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        second_interrupt = self._interrupted and number == signal.SIGINT
        self._interrupted = self._interrupted or number == signal.SIGINT
        if not self._asked:
            self._asked = True
            self._stop()
        elif second_interrupt:
            self._abandon()
        elif number == signal.SIGTERM:
            self._again()


def _exit_interrupted() -> None:
    os._exit(EXIT_INTERRUPTED)


def _check_open(fd: int) -> None:
    try:
        os.fstat(fd)
    except OSError as error:
        raise ConfigError(f"status-fd: {fd} is not an open file descriptor") from error
