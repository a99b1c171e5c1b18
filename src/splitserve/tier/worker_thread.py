"""The tier's own thread: it reads and writes files, so that the engine's never does.

Another thread (the engine's) asks, and polls what became of it. Loads come first, for requests wait
for them; then what is to be stored, then what is only to be found faster next time.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from queue import Empty, PriorityQueue, SimpleQueue
from typing import Final, NewType

from splitserve.errors import BugError
from splitserve.tier.copier import BlockCopier
from splitserve.tier.levels import LevelNumber, Levels
from splitserve.tier.store import LevelCounts

LoadId = NewType("LoadId", int)
"""One load that was asked for."""

CLOSE_WAIT_S: Final = 5.0
"""How long ``close`` waits for the file that is being read or written."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A load has ended, told exactly once: the first ``count`` of its blocks hold their KV, and
    none of them is touched any more."""

    load: LoadId
    count: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The block is kept, or cannot be: it is not read any more."""

    block: int


@dataclass(frozen=True, slots=True)
class _Load:
    load: LoadId
    digests: tuple[bytes, ...]
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Store:
    digest: bytes
    block: int


@dataclass(frozen=True, slots=True)
class _Promote:
    digest: bytes
    found: LevelNumber


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


@dataclass(frozen=True, slots=True)
class _Broken:
    error: BaseException


_Job = _Load | _Store | _Promote | _Stop

_URGENCY: Final[Mapping[type[_Job], int]] = {_Stop: 0, _Load: 1, _Store: 2, _Promote: 3}


class TierThread:
    """Owns the thread, which alone uses the ``levels`` while it runs. All methods are for one other
    thread; none but ``close`` waits."""

    def __init__(self, levels: Levels, copier: BlockCopier) -> None:
        self._levels = levels
        self._copier = copier
        self._serials = count()
        self._loads = count(1)
        self._jobs: PriorityQueue[tuple[int, int, _Job]] = PriorityQueue()
        self._results: SimpleQueue[Loaded | Stored | _Broken] = SimpleQueue()
        self._open: set[LoadId] = set()
        self._cancelled: set[LoadId] = set()
        self._waiting: set[LoadId] = set()
        self._waiting_lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._main, name="kv-tier", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def load(self, digests: Sequence[bytes], blocks: Sequence[int]) -> LoadId:
        """Brings the longest known start of ``digests`` into ``blocks``, one for each, which nobody
        else uses until the load has ended."""
        if len(digests) != len(blocks):
            raise BugError(f"{len(digests)} digests are to be loaded into {len(blocks)} blocks")
        load = LoadId(next(self._loads))
        self._open.add(load)
        with self._waiting_lock:
            self._waiting.add(load)
        self._post(_Load(load, tuple(digests), tuple(blocks)))
        return load

    def cancel(self, load: LoadId) -> None:
        """A load that is under way ends with the block it is at, one that was not begun at once, so
        that no file that hangs keeps its blocks. Of others this does nothing."""
        if self._claim(load):
            self._results.put(Loaded(load, 0))
        elif load in self._open:
            self._cancelled.add(load)

    def store(self, digest: bytes, block: int) -> None:
        """Keeps the block, which nobody writes until it is told as Stored."""
        self._post(_Store(digest, block))

    def poll(self) -> list[Loaded | Stored]:
        """What ended since the last call. Raises what broke the thread, if anything did."""
        ended: list[Loaded | Stored] = []
        while True:
            try:
                result = self._results.get_nowait()
            except Empty:
                return ended
            if isinstance(result, _Broken):
                raise result.error
            if isinstance(result, Loaded):
                self._open.discard(result.load)
                self._cancelled.discard(result.load)
            ended.append(result)

    def counts(self) -> Mapping[str, LevelCounts]:
        """By level: ``memory``, ``disk``."""
        return self._levels.counts()

    def held_bytes(self) -> Mapping[str, int]:
        """By level, of all processes of the host. Not after ``close``."""
        return self._levels.held_bytes()

    def close(self) -> bool:
        """Ends the thread after the block it is at; what still waits is not done.

        False when it does not end in time: the pool's memory must then stay where it is.

        May be called twice, and before ``start``.
        """
        if self._thread.ident is None:
            return True
        self._stopping.set()
        self._post(_Stop())
        self._thread.join(CLOSE_WAIT_S)
        return not self._thread.is_alive()

    def _post(self, job: _Job) -> None:
        # The serial keeps jobs of one urgency in order, so that jobs are never compared.
        self._jobs.put((_URGENCY[type(job)], next(self._serials), job))

    def _claim(self, load: LoadId) -> bool:
        """Whether the load was not begun. One thread alone is told so, and sees to its end."""
        with self._waiting_lock:
            if load not in self._waiting:
                return False
            self._waiting.remove(load)
            return True

    # The thread

    def _main(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - the engine's thread is to die of it, loudly
            self._results.put(_Broken(error))

    def _run(self) -> None:
        while True:
            _, _, job = self._jobs.get()
            match job:
                case _Stop():
                    return
                case _Load():
                    if self._claim(job.load):
                        self._results.put(Loaded(job.load, self._load(job)))
                case _Store():
                    self._levels.store(job.digest, self._copier.to_host(job.block))
                    self._results.put(Stored(job.block))
                case _Promote():
                    self._levels.promote(job.digest, job.found)

    def _load(self, job: _Load) -> int:
        """How many of its blocks were found, from the first on."""
        for done, (digest, block) in enumerate(zip(job.digests, job.blocks, strict=True)):
            if self._stopping.is_set() or job.load in self._cancelled:
                return done
            found = self._levels.load(digest, self._copier.landing(block))
            if found is None:
                return done
            self._copier.from_host(block)
            if found > 0:
                self._post(_Promote(digest, found))
        return len(job.digests)
