"""Writing a study's files: whole or not at all, and an error that says what to do."""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from splitserve.errors import UnavailableError

_CURES: Final = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room, or have the quota raised",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EACCES: "have that folder made writable, or give another one with --out",
    errno.EROFS: "give another folder with --out",
}


def refused(path: Path, error: OSError) -> UnavailableError:
    """``path`` cannot be written, why, and the cure where one is known; one line."""
    cure = _CURES.get(error.errno or 0)
    said = f"{path} cannot be written: {error.strerror or error}"
    return UnavailableError(f"{said}; {cure}" if cure else said)


def append(path: Path, line: bytes) -> None:
    """Adds ``line``, which is on disk on return. Raises UnavailableError, and then nothing was
    added: half a line would spoil the one that is added after it."""
    try:
        with path.open("ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                _write_all(file.fileno(), line)
                os.fsync(file.fileno())
            except OSError:
                # The first error is the one to tell.
                with suppress(OSError):
                    os.ftruncate(file.fileno(), before)
                raise
    except OSError as error:
        raise refused(path, error) from error


def write(path: Path, content: bytes) -> None:
    """The file with its folder, on disk on return. Raises UnavailableError, and then what was there
    is still there."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            # On a full disk half a file would take the room that is looked for.
            part.unlink(missing_ok=True)
    except OSError as error:
        raise refused(path, error) from error


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
