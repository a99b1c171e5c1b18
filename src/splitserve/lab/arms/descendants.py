"""Which processes belong to another, from proc(5)."""

from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def descendants(pid: int) -> frozenset[int]:
    """Process ids of all that ``pid`` started, and they in turn; without ``pid``."""
    parents = _parents()
    found: set[int] = set()
    newest = {pid}
    while newest:
        newest = {child for child, parent in parents.items() if parent in newest} - found
        found |= newest
    return frozenset(found)


def living(pids: frozenset[int]) -> frozenset[int]:
    """Those of ``pids`` that run still; a process that ended and waits to be reaped does not."""
    return pids & _parents().keys()


def _parents() -> dict[int, int]:
    parents: dict[int, int] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            # What ends meanwhile is not listed.
            with suppress(OSError):
                # The name in parentheses may hold anything, parentheses too.
                state, parent = (
                    (folder / "stat").read_text("latin-1").rpartition(")")[2].split()[:2]
                )
                if state not in "ZX":
                    parents[int(folder.name)] = int(parent)
    return parents
