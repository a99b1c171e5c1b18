"""One level of the tier: blocks as files of one folder, found by their digest.

All workers of a host may use one folder at once; the sizes of its files, also of those that are
being written, never add up to more than the bound of any process that adds to it. Short of room the
block that is unused for the longest time goes first, whoever brought it.

    FOLDER/.quota                   lock and number of bytes (``quota``)
    FOLDER/.part-RANDOM             a file that is being written; its writer holds a lock on it
    FOLDER/FINGERPRINT/DIGEST       a whole block: header and bytes (``format``)

A file appears under its name by a rename, whole. What a killed process leaves is swept by the next
that counts the folder. Nothing is forced to the disk: after a power failure a file may hold
anything, and its checksum tells.
"""

import fcntl
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Final

from splitserve.errors import BugError
from splitserve.tier.files import read_into, send, write_from
from splitserve.tier.folder import PRIVATE
from splitserve.tier.format import HEADER_BYTES, Identity, checksum, header
from splitserve.tier.quota import Quota
from splitserve.tier.survey import PART_PREFIX, Entry, survey

LONGEST_SEARCH: Final = 1000
"""So many blocks are at most sent away to make room for one; then there is none."""

_LEAST_KNOWN: Final = 64
"""Of a count of the folder at least so many of the oldest blocks are remembered."""


@dataclass(frozen=True, slots=True)
class LevelCounts:
    """Since this process began to use the level. ``nbytes`` are those of blocks it brought;
    ``evictions`` are blocks that this process sent away, ``corrupt`` those it found not to be what
    they should and removed."""

    hits: int
    misses: int
    nbytes: int
    evictions: int
    corrupt: int


@dataclass(frozen=True, slots=True)
class _Part:
    path: Path
    fd: int
    nbytes: int


def forget(_name: str, _file: Path) -> None:
    """What to do with an evicted block for which there is no other place."""


class FolderTier:
    """One process's handle on a folder; used by one thread. Every method may raise OSError, which
    leaves the folder as good as it was.

    ``evicted`` is told of a block's name and file just before it goes for lack of room.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        identity: Identity,
        evicted: Callable[[str, Path], object] = forget,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """``path`` is a folder that is there and private (see ``folder``)."""
        self._root = path
        self._max_bytes = max_bytes
        self._identity = identity
        self._evicted = evicted
        self._now_ns = now_ns
        self._quota = Quota(path / ".quota")
        self._oldest: deque[Entry] = deque()
        self._hits = self._misses = self._evictions = self._corrupt = 0
        with self._quota.locked():
            self._count()

    def get(self, digest: bytes, parts: Sequence[memoryview]) -> bool:
        """Fills ``parts`` with the block, which counts as used now. After False they may hold
        anything. A file that is not what it should be is removed."""
        name = self._name(digest, parts)
        try:
            fd = os.open(self._root / name, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            self._misses += 1
            return False
        try:
            if not self._read(fd, digest, parts):
                self._discard(name, fd)
                self._misses += 1
                return False
            self._use(fd)
        finally:
            os.close(fd)
        self._hits += 1
        return True

    def put(self, digest: bytes, parts: Sequence[memoryview]) -> bool:
        """Keeps the block. False when there is no room. One that is there counts as used now."""
        name = self._name(digest, parts)
        if self._used(name):
            return True
        head = memoryview(header(self._identity, digest, checksum(parts)))
        return self._add(
            name, self._identity.file_bytes, lambda fd: write_from(fd, [head, *parts], 0)
        )

    def take(self, name: str, file: Path) -> bool:
        """As ``put``, with another store's file of that name. It may be of any model: what is in it
        is looked at when it is asked for."""
        if self._used(name):
            return True
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            nbytes = os.fstat(fd).st_size
            return self._add(name, nbytes, lambda target: send(fd, target, nbytes))
        finally:
            os.close(fd)

    def file(self, digest: bytes) -> tuple[str, Path]:
        """What ``take`` of another store asks for."""
        name = self._identity.name(digest)
        return name, self._root / name

    def counts(self) -> LevelCounts:
        """From any thread."""
        nbytes = self._hits * self._identity.nbytes
        return LevelCounts(self._hits, self._misses, nbytes, self._evictions, self._corrupt)

    def held_bytes(self) -> int:
        """Of all processes; from any thread."""
        return self._quota.total()

    def empty(self) -> None:
        """Removes every block."""
        with self._quota.locked():
            for entry in survey(self._root).blocks:
                (self._root / entry.name).unlink()
            self._count()

    def close(self) -> None:
        """May be called twice."""
        self._quota.close()

    # Reading

    def _name(self, digest: bytes, parts: Sequence[memoryview]) -> str:
        given = sum(len(part) for part in parts)
        if given != self._identity.nbytes:
            raise BugError(f"a block has {self._identity.nbytes} bytes, not {given}")
        return self._identity.name(digest)

    def _read(self, fd: int, digest: bytes, parts: Sequence[memoryview]) -> bool:
        """Whether ``parts`` hold the block now."""
        try:
            if os.fstat(fd).st_size != self._identity.file_bytes:
                return False
            head = os.pread(fd, HEADER_BYTES, 0)
            if not read_into(fd, parts, HEADER_BYTES):
                return False
        except OSError:
            return False  # a medium that lost bytes: the file is of no more use than a wrong one
        return head == header(self._identity, digest, checksum(parts))

    def _discard(self, name: str, fd: int) -> None:
        """Removes the file that is open as ``fd``, unless it is gone or a new one has its place."""
        path, bad = self._root / name, os.fstat(fd)
        self._corrupt += 1
        with self._quota.locked():
            try:
                found = path.lstat()
            except FileNotFoundError:
                return
            if found.st_ino == bad.st_ino:
                path.unlink()
                self._quota.add(-found.st_size)

    def _used(self, name: str) -> bool:
        """Whether the block is there; it counts as used now."""
        try:
            self._use(self._root / name)
        except FileNotFoundError:
            return False
        return True

    def _use(self, file: Path | int) -> None:
        now = self._now_ns()
        os.utime(file, ns=(now, now))

    # Writing

    def _add(self, name: str, nbytes: int, fill: Callable[[int], None]) -> bool:
        part = self._reserve(nbytes)
        if part is None:
            return False
        try:
            fill(part.fd)
            self._use(part.fd)
            self._publish(part, name)
        except OSError:
            self._withdraw(part)
            raise
        finally:
            # Last: while it is open nobody takes the file for one that a dead process left.
            os.close(part.fd)
        return True

    def _reserve(self, nbytes: int) -> _Part | None:
        """A file of that size without content, once there is room for it."""
        if nbytes > self._max_bytes:
            return None
        for _ in range(LONGEST_SEARCH):
            with self._quota.locked():
                if not self._fits(nbytes) and not self._oldest:
                    self._count()
                if self._fits(nbytes):
                    return self._open_part(nbytes)
                victim = self._oldest.popleft() if self._oldest else None
            if victim is None:
                return None
            self._evict(victim)
        return None

    def _fits(self, nbytes: int) -> bool:
        return self._quota.total() + nbytes <= self._max_bytes

    def _count(self) -> None:
        """Under the lock: counts the folder anew and learns which blocks are the oldest.

        What is learned stays right: others can only be used, or come, later than these.
        """
        contents = survey(self._root)
        self._quota.set(contents.nbytes)
        known = max(_LEAST_KNOWN, len(contents.blocks) // 8)
        self._oldest = deque(contents.blocks[:known])

    def _open_part(self, nbytes: int) -> _Part:
        """Under the lock. The file has its whole size at once, so that it is counted with it."""
        self._quota.add(nbytes)
        path = self._root / f"{PART_PREFIX}{token_hex(8)}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, nbytes)
        except OSError:
            os.close(fd)
            raise
        return _Part(path, fd, nbytes)

    def _publish(self, part: _Part, name: str) -> None:
        path = self._root / name
        with self._quota.locked():
            if path.exists():
                # Another process was faster.
                part.path.unlink()
                self._quota.add(-part.nbytes)
                return
            if not path.parent.exists():
                path.parent.mkdir(PRIVATE)
            part.path.rename(path)

    def _withdraw(self, part: _Part) -> None:
        with self._quota.locked():
            part.path.unlink(missing_ok=True)
            self._quota.add(-part.nbytes)

    def _evict(self, victim: Entry) -> None:
        """Unless it was used since the folder was counted."""
        path = self._root / victim.name
        if not self._is_unused(path, victim):
            return
        self._evicted(victim.name, path)
        with self._quota.locked():
            if self._is_unused(path, victim):
                path.unlink()
                self._quota.add(-victim.nbytes)
                self._evictions += 1

    def _is_unused(self, path: Path, victim: Entry) -> bool:
        try:
            return path.lstat().st_mtime_ns == victim.used_ns
        except FileNotFoundError:
            return False
