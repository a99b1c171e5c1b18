"""``splitserve pull NAME``: fetch a model and say what it costs to hold."""

import sys
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars

from splitserve.errors import ConfigError, UnavailableError
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.known import KNOWN
from splitserve.modelstore.resolve import resolve

_CONFIG_ERROR: Final = 2
_UNAVAILABLE: Final = 3
_INTERRUPTED: Final = 130
_CONTEXTS: Final = (1024, 8192)


class RichProgress:
    """Shows each stage as a bar on stderr. A context manager: the bars stay when it closes."""

    def __init__(self, console: Console | None = None) -> None:
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Stopping what never started would print an empty line.
        if self._bars.live.is_started:
            self._bars.stop()

    def stage(self, name: str, total_bytes: int | None) -> None:
        """A new bar below the finished ones."""
        self.done()
        self._bars.start()
        self._task = self._bars.add_task(name, total=total_bytes)

    def advance(self, nbytes: int) -> None:
        """Moves the newest bar."""
        if self._task is not None:
            self._bars.advance(self._task, nbytes)

    def done(self) -> None:
        """Fills the newest bar; one without a length just goes."""
        if self._task is None:
            return
        total = self._bars.tasks[-1].total
        if total is None:
            self._bars.remove_task(self._task)
        else:
            self._bars.update(self._task, completed=total)
        self._task = None


def run(name: str) -> int:
    """Fetches ``name`` (any form that ``serve`` takes) and prints what it is.

    Returns the exit code: 0, 2 (cannot be used), 3 (cannot be fetched) or 130 (Ctrl-C). An error is
    one line on stderr.
    """
    try:
        with RichProgress() as progress:
            folder = resolve(name, progress=progress)
        print(describe(name, folder))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return _CONFIG_ERROR
    except UnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        return _UNAVAILABLE
    except KeyboardInterrupt:
        print("error: interrupted, nothing half-made was kept", file=sys.stderr)
        return _INTERRUPTED
    return 0


def describe(name: str, folder: ModelFolder) -> str:
    """Where the model lies, how large it is, its licence where known, what its KV cache costs."""
    token_bytes = folder.kv_token_bytes()
    contexts = ", ".join(
        f"{_size(tokens * token_bytes)} for {tokens // 1024}k tokens" for tokens in _CONTEXTS
    )
    lines = [
        ("folder", str(folder.path)),
        ("weights", f"{_size(folder.weight_bytes())} ({folder.format})"),
        ("context", f"{folder.max_model_len()} tokens"),
        ("KV cache", f"{_size(token_bytes)} a token in bf16: {contexts}"),
    ]
    if name in KNOWN:
        lines.insert(2, ("licence", KNOWN[name].licence))
    return "\n".join(f"{label:<9} {value}" for label, value in lines)


def _size(nbytes: int) -> str:
    value, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}"
