"""The demo's last part: the same question asked as a study, cut down to a minute or two."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console

from splitserve.cli import lab, lab_extra
from splitserve.lab.verdict.outcome import EXIT_CODES

STUDY: Final = Path(__file__).with_name("demo_files") / "demo.toml"
RESULTS: Final = Path("results")

INTRODUCTION: Final = (
    "a study of both shapes, as `splitserve lab run` makes it: a minute and a half",
    "  It is a smoke study and proves nothing: three pairs of runs of 20 requests, never an ADOPT.",
)


def run_study(console: Console, study: Path = STUDY, results: Path = RESULTS) -> int:
    """Runs ``study`` into a new folder below ``results`` and says where its report is.

    0 whatever the verdict; the lab's own code where there is none, or it was stopped.
    """
    if lab_extra.missing():
        console.print(f"No study: {lab_extra.missing()}", markup=False, highlight=False)
        return 0
    console.print(f"\n[bold]*[/bold] {INTRODUCTION[0]}\n{INTRODUCTION[1]}", highlight=False)
    folder = results / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    code = lab.run(study, None, folder)
    if code not in EXIT_CODES.values():
        return code
    console.print(
        "That was a smoke study, which proves nothing; `splitserve lab check` shows what a whole "
        "one takes (docs/lab.md).",
        highlight=False,
    )
    if console.is_terminal:
        show_page((folder / "report.html").resolve(), os.environ, sys.platform)
    return 0


def show_page(page: Path, environ: Mapping[str, str], platform: str) -> bool:
    """Hands ``page`` to the desktop's browser, if there is a desktop; never waits, never fails."""
    program = browser_opener(environ, platform)
    if program is None:
        return False
    # The shell leaves at once, and what it leaves behind cannot write over the terminal.
    command = ("sh", "-c", '"$0" "$1" >/dev/null 2>&1 &', program, str(page))
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 0


def browser_opener(environ: Mapping[str, str], platform: str) -> str | None:
    """The program that opens a page on this desktop; None where nobody would see it."""
    if "SSH_CONNECTION" in environ:
        return None
    if platform == "darwin":
        return shutil.which("open", path=environ.get("PATH"))
    if environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"):
        return shutil.which("xdg-open", path=environ.get("PATH"))
    return None
