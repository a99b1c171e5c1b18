"""What SIGHUP means to a command in the foreground: restart, or: the terminal is gone."""

import asyncio
import os
import signal
from collections.abc import Callable
from types import TracebackType


class HangupSignal:
    """Within the block, SIGHUP calls ``restart``; ``stop`` instead where there was a terminal and
    is none any more: shells send the same signal when their window closes. Both on the event loop.
    """

    def __init__(self, restart: Callable[[], object], stop: Callable[[], object]) -> None:
        self._restart = restart
        self._stop = stop
        self._had_terminal = has_terminal()

    def __enter__(self) -> "HangupSignal":
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)

    def _on_signal(self) -> None:
        if self._had_terminal and not has_terminal():
            self._stop()
        else:
            self._restart()


def has_terminal() -> bool:
    """Whether this process has a controlling terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
