"""What lies in a store's folder. Only files with names of ours are seen, counted or removed."""

import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from splitserve.tier.format import NAME_BYTES

PART_PREFIX: Final = ".part-"
"""Files that are being written lie beside the folders of blocks. Their writers hold a lock."""

_NAME: Final = re.compile(f"[0-9a-f]{{{2 * NAME_BYTES}}}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A block's file. ``name`` is from the store's folder on; ``used_ns`` is its mtime, which is
    when it was last used."""

    name: str
    used_ns: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Contents:
    """``blocks`` in the order of their last use, the one unused for the longest time first.
    ``nbytes`` are those of all files, also of the ones that are being written."""

    blocks: list[Entry]
    nbytes: int


def survey(root: Path) -> Contents:
    """Removes what dead processes left half written, and tells what is there. Under the lock of the
    store: nothing may come or go meanwhile. Raises OSError."""
    blocks: list[Entry] = []
    nbytes = 0
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith(PART_PREFIX):
                if not _removed(entry.path):
                    nbytes += entry.stat(follow_symlinks=False).st_size
            elif _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                blocks += _blocks(entry.path, entry.name)
    blocks.sort(key=lambda block: block.used_ns)
    return Contents(blocks, nbytes + sum(block.nbytes for block in blocks))


def _blocks(path: str, folder: str) -> Iterator[Entry]:
    with os.scandir(path) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                yield Entry(f"{folder}/{entry.name}", found.st_mtime_ns, found.st_size)


def _removed(part: str) -> bool:
    """Whether nobody writes the file any more; it is gone then."""
    fd = os.open(part, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    Path(part).unlink()
    return True
