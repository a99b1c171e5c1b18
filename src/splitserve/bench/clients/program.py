"""Running another tool's client."""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from splitserve.errors import UnavailableError
from splitserve.lifecycle import describe_exit

_LAST: Final = 600
"""Characters of a failed client's output that are shown."""


def found(program: str) -> str:
    """Its full path. Raises UnavailableError, in one line, where there is none."""
    path = shutil.which(program)
    if path is None:
        raise UnavailableError(f"no program {program!r}; give the path of the client's executable")
    return path


async def run_program(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Output goes to ``log``. Raises UnavailableError with its end when the program fails.

    It does not outlive the call.
    """
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **(environment or {})},
        )
    try:
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code != 0:
        raise UnavailableError(f"{Path(command[0]).name} {describe_exit(code)}: {_end_of(log)}")


async def output_of(command: Sequence[str]) -> str:
    """What it prints, stripped; stderr is dropped."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    out, _ = await process.communicate()
    return out.decode(errors="replace").strip()


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-_LAST:]
