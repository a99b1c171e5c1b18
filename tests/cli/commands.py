"""Runs the ``splitserve`` command as a user does."""

import os
import subprocess
import sys
from pathlib import Path


def splitserve(*arguments: str | Path, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "splitserve", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", **env},
    )
