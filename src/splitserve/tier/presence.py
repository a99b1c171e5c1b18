"""Whether anybody else uses a folder: what memory holds for nobody is to be given back."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path


class Presence:
    """One process's mark, in the form of a shared lock that ends with it."""

    def __init__(self, path: Path) -> None:
        """Waits while the last one before tidies up. Raises OSError."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def leave(self, last: Callable[[], None]) -> None:
        """Calls ``last`` if nobody else is present; nobody comes meanwhile. May be called twice."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            last()
        finally:
            os.close(fd)
