"""Reading and writing of pieces of memory at a place of a file. All raise OSError."""

import os
from collections.abc import Iterable


def read_into(fd: int, parts: Iterable[memoryview], offset: int) -> bool:
    """Fills ``parts``, one after another, from ``offset`` on. False when the file ends before."""
    for part in parts:
        done = 0
        while done < len(part):
            count = os.preadv(fd, [part[done:]], offset + done)
            if count == 0:
                return False
            done += count
        offset += len(part)
    return True


def write_from(fd: int, parts: Iterable[memoryview], offset: int) -> None:
    for part in parts:
        done = 0
        while done < len(part):
            done += os.pwrite(fd, part[done:], offset + done)
        offset += len(part)


def send(source: int, target: int, nbytes: int) -> None:
    """Copies the first ``nbytes`` within the kernel, or as many as there are, to the beginning of
    ``target``, which was not written yet."""
    done = 0
    while done < nbytes:
        count = os.sendfile(target, source, done, nbytes - done)
        if count == 0:
            return
        done += count
