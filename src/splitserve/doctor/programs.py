"""Short programs of others, asked within a time limit."""

import shutil
import subprocess
from collections.abc import Sequence


def output_of(argv: Sequence[str], within_s: float) -> str | None:
    """What the program prints; None where there is none, it fails, or it takes too long."""
    program = shutil.which(argv[0])
    if program is None:
        return None
    try:
        done = subprocess.run(
            (program, *argv[1:]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=within_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
