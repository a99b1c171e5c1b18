"""The folder of one deployment's sockets and logs: private, short of name, gone afterwards."""

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from splitserve.errors import UnavailableError

_PREFIX: Final = "splitserve-"
_LOCK: Final = "lock"
_KEEP_S: Final = 24 * 3600.0


class RunDirectory:
    """Made on entry (mode 0700), removed on exit unless ``keep`` was called.

    A lock that the kernel drops when the owner dies tells a folder in use from one left behind;
    those left behind are removed a day later, by whoever starts next.
    """

    def __init__(self, base: Path | None = None) -> None:
        self._base = base or _default_base()
        self._keep = False
        self._lock_fd = -1
        self.path = Path()

    def __enter__(self) -> "RunDirectory":
        try:
            remove_left_behind(self._base, time.time())
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._base))
            self._lock_fd = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise UnavailableError(
                f"cannot make a folder for sockets and logs in {self._base}: {error.strerror}"
            ) from error
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._lock_fd)
        if not self._keep:
            shutil.rmtree(self.path, ignore_errors=True)

    def keep(self) -> None:
        """Leaves the folder for whoever wants to read the logs."""
        self._keep = True


def remove_left_behind(base: Path, now: float) -> None:
    """Removes this user's run folders in ``base`` that have no living owner and are a day old."""
    for path in base.glob(f"{_PREFIX}*"):
        # Another start may be removing it, or it may be someone else's.
        with suppress(OSError):
            stat = path.lstat()
            if stat.st_uid == os.getuid() and now - stat.st_mtime > _KEEP_S and _unlocked(path):
                shutil.rmtree(path)


def _unlocked(path: Path) -> bool:
    fd = os.open(path / _LOCK, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _default_base() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime)
    return Path(tempfile.gettempdir())
