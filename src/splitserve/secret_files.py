"""Secrets that operators give in files or in the environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from splitserve.errors import ConfigError

_OTHERS: Final = 0o077


def secret_of(
    flag: str, file: Path | None, variable: str, environment: Mapping[str, str], *, min_bytes: int
) -> bytes | None:
    """What ``file`` (given with ``flag``) holds, else the environment's ``variable``, else None.

    Raises ConfigError for a file that cannot be read or that others can read too, and for fewer
    than ``min_bytes``.
    """
    if file is not None:
        return _long_enough(private_bytes(flag, file).strip(), f"{flag} {file}", min_bytes)
    given = environment.get(variable)
    return None if given is None else _long_enough(given.strip().encode(), variable, min_bytes)


def private_bytes(flag: str, file: Path) -> bytes:
    """The file's content. Raises ConfigError when it cannot be read or is open to others."""
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & _OTHERS:
                raise ConfigError(f"{flag} {file} is open to others: chmod 600 {file}")
            return opened.read()
    except OSError as error:
        raise ConfigError(f"{flag} {file}: {error.strerror}") from error


def _long_enough(secret: bytes, source: str, min_bytes: int) -> bytes:
    if len(secret) < min_bytes:
        raise ConfigError(
            f"{source} has {len(secret)} bytes: give at least {min_bytes} random ones"
        )
    return secret
