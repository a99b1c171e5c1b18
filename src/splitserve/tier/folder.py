"""Folders that nobody else can read, and whether there is room for what they are to hold."""

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from splitserve.errors import ConfigError

PRIVATE: Final = 0o700
_OTHERS: Final = 0o077


def private_folder(path: Path, setting: str) -> None:
    """Makes the folder, and those above it, where they are missing.

    Raises ConfigError, which names ``setting``, when it cannot be made, belongs to another user or
    is open to others: KV tells what was asked and answered.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(PRIVATE)
        # Not through a link: who may write into the folder above could point it elsewhere.
        found = path.lstat()
    except OSError as error:
        raise ConfigError(f"{setting}: {path}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{setting}: {path} is not a folder")
    if found.st_uid != os.geteuid():
        raise ConfigError(f"{setting}: {path} belongs to another user: give a folder of your own")
    if found.st_mode & _OTHERS:
        raise ConfigError(f"{setting}: {path} is open to others: chmod 700 {path}")


def check_room(path: Path, nbytes: int, setting: str, cure: str) -> None:
    """Raises ConfigError, which ends in ``cure``, where the file system could never hold so much.

    A file system that tells no size has no limit of its own.
    """
    total = shutil.disk_usage(path).total
    if 0 < total < nbytes:
        raise ConfigError(f"{setting} is {nbytes}, but {path} lies on {total} bytes: {cure}")
