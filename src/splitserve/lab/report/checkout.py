"""Which commit this program runs from, where it runs from a checkout."""

import subprocess
from pathlib import Path
from typing import Final

import splitserve

_HERE: Final = Path(splitserve.__file__)
_PATIENCE_S: Final = 5.0


def checkout_commit(file: Path = _HERE) -> str | None:
    """The commit of the checkout that tracks ``file``, "with changes" where files of it differ.

    None for an installed package, which has its version only, and where there is no git.
    """
    # A package that was installed into somebody's checkout is not part of it.
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    commit = _git(file.parent, "rev-parse", "HEAD")
    if not commit:
        return None
    changed = _git(file.parent, "status", "--porcelain", "--untracked-files=no", ".")
    return f"{commit}, with changes" if changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None where it refuses or there is none."""
    try:
        done = subprocess.run(
            ("git", *arguments),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
