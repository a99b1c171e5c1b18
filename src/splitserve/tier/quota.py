"""One folder's lock and the number of bytes in it, shared by all processes that use it.

The lock is the kernel's (flock): it ends with its holder, however that dies. The number is only
changed under the lock, raised before bytes are taken and lowered after they are given back. So a
process that is killed in between leaves it too high, never too low.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LOCK_WAIT_S: Final = 1.0
"""How long a holder that is stopped may keep the others waiting."""

_RETRY_S: Final = 0.0005
_COUNT_BYTES: Final = 8


class Quota:
    """Not thread-safe; several may be open on one file, also in one process."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises TimeoutError when another keeps the lock, FileNotFoundError when somebody has
        removed the file: whoever makes it anew would not share the lock."""
        self._lock()
        try:
            if os.fstat(self._fd).st_nlink == 0:
                raise FileNotFoundError(f"{self._path} was removed")
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _lock(self) -> None:
        until = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise TimeoutError(f"another process keeps {self._path} locked") from None
                time.sleep(_RETRY_S)
            else:
                return

    def total(self) -> int:
        """Bytes in the folder, or more."""
        return int.from_bytes(os.pread(self._fd, _COUNT_BYTES, 0), "little")

    def add(self, nbytes: int) -> None:
        """Under the lock; negative for bytes that are gone."""
        self.set(max(0, self.total() + nbytes))

    def set(self, nbytes: int) -> None:
        """Under the lock: what a count of the files has shown."""
        os.pwrite(self._fd, nbytes.to_bytes(_COUNT_BYTES, "little"), 0)

    def close(self) -> None:
        """May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
