"""What became of every run, as lines that are only ever added: ``runs.jsonl``.

    planned -> started -> measured -> accepted
    started, measured, accepted -> void    it broke a rule, was interrupted, or its pair was
    planned -> skipped                     by decision, with the reason

A line is on disk before the next step is taken. A last line without its end was being written when
the lab died: it is cut off and says nothing.
"""

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import msgspec

from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.run.disk import append, refused


class State(StrEnum):
    """Where a run stands; the last entry of its number counts. Without an entry it is PLANNED."""

    PLANNED = "planned"
    STARTED = "started"
    MEASURED = "measured"
    ACCEPTED = "accepted"
    VOID = "void"
    SKIPPED = "skipped"


class Entry(msgspec.Struct, kw_only=True, frozen=True, tag_field="schema", tag="run/1"):
    """``attempt`` counts from 1. ``at`` is wall-clock time with zone, for people. ``start`` tells
    two starts of an arm apart. ``seconds`` is how long the attempt took, its arm's start included;
    ``rate_per_s`` what was asked for, None in a closed loop. ``invalid``: void since the run broke
    a rule, and not since the lab was stopped. ``folder``: where its files are, below the study's.
    """

    number: int
    attempt: int
    state: State
    at: str
    arm: str = ""
    reason: str = ""
    start: str = ""
    rate_per_s: float | None = None
    seconds: float = 0.0
    invalid: bool = False
    folder: str = ""


class Journal:
    """The entries of one study. Open once; ``add`` raises UnavailableError when the disk is full,
    and then the entry is not in the file either. ConfigError for a file that is none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries = read_entries(path)
        _cut_torn_line(path)

    def add(self, entry: Entry) -> None:
        """On disk when it returns."""
        append(self._path, msgspec.json.encode(entry) + b"\n")
        self.entries.append(entry)

    def last(self, number: int) -> Entry | None:
        """The newest entry of a run; None for one that was never begun."""
        return next((one for one in reversed(self.entries) if one.number == number), None)

    def is_accepted(self, number: int) -> bool:
        last = self.last(number)
        return last is not None and last.state is State.ACCEPTED

    def attempts(self, number: int) -> int:
        """How often the run was begun."""
        return max((one.attempt for one in self.entries if one.number == number), default=0)

    def invalid(self, numbers: Iterable[int]) -> int:
        """How often one of these runs broke a rule: of a pair, how often the pair did."""
        wanted = set(numbers)
        return sum(one.number in wanted and one.invalid for one in self.entries)

    def spent_s(self) -> float:
        """Seconds that all attempts took together."""
        return sum(one.seconds for one in self.entries)


def read_entries(path: Path) -> list[Entry]:
    """All whole lines; none where there is no file yet. Raises ConfigError."""
    try:
        whole, _, _ = path.read_bytes().rpartition(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return [msgspec.json.decode(line, type=Entry) for line in whole.splitlines()]
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is no journal of runs: {error}") from error


def newest_entries(path: Path) -> dict[int, Entry]:
    """The last entry of each run, by its number: where it stands. Raises as ``read_entries``."""
    return {one.number: one for one in read_entries(path)}


def now_text() -> str:
    """The wall clock, for people who read journals."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _cut_torn_line(path: Path) -> None:
    if path.exists():
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            try:
                os.truncate(path, content.rfind(b"\n") + 1)
            except OSError as error:
                raise refused(path, error) from error
