"""Makes a directory appear whole or not at all.

The work is done in a hidden directory beside the target, which is then renamed into place. A lock,
which the kernel drops when its holder dies, lets one process work at a time; whatever an earlier
holder left behind is removed by the next.
"""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from splitserve.modelstore.progress import Progress


@contextmanager
def staging(target: Path, progress: Progress) -> Iterator[Path]:
    """An empty directory on ``target``'s file system; gone at the end, however that comes.

    Waits while another process stages the same target. Raises OSError when nothing can be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}.part-"
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        _acquire(lock.fileno(), target, progress)
        for leftover in target.parent.glob(f"{prefix}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        place = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def put_in_place(made: Path, target: Path) -> None:
    """Renames ``made``, inside the staging directory, to ``target``.

    An older ``target`` is moved into the staging directory first, and so goes with it.
    """
    if target.exists():
        target.rename(made.parent / f"{made.name}.old")
    made.rename(target)


def _acquire(descriptor: int, target: Path, progress: Progress) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        progress.stage(f"waiting for another process to make {target.name}", None)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
