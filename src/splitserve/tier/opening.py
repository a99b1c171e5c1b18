"""Joins the parts of the tier as one worker was asked to have it."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from splitserve.errors import ConfigError, UnavailableError
from splitserve.protocol.memory import KVLayout
from splitserve.tier.config import TierConfig
from splitserve.tier.copier import BlockCopier
from splitserve.tier.folder import check_room, private_folder
from splitserve.tier.format import Identity, identity
from splitserve.tier.levels import Level, Levels
from splitserve.tier.presence import Presence
from splitserve.tier.store import FolderTier, forget
from splitserve.tier.worker_thread import TierThread

log = logging.getLogger(__name__)

SHARED_MEMORY: Final = Path("/dev/shm")
"""A file system in memory, on Linux."""

MEMORY_FLAG: Final = "--kv-tier-memory-bytes"
DISK_FLAG: Final = "--kv-tier-disk-path"
DISK_BYTES_FLAG: Final = "--kv-tier-disk-bytes"


@dataclass(frozen=True, slots=True)
class _Memory:
    store: FolderTier
    presence: Presence


class Tier:
    """What a worker holds of the tier. ``close`` it before the engine."""

    def __init__(
        self, thread: TierThread, copier: BlockCopier, levels: Levels, memory: _Memory | None
    ) -> None:
        self.thread = thread
        self._copier = copier
        self._levels = levels
        self._memory = memory

    def close(self) -> None:
        """The last worker of the host to close gives the memory back. May be called twice.

        Raises UnavailableError when the thread does not end: the pool must not be freed then.
        """
        if not self.thread.close():
            raise UnavailableError("the KV tier's thread hangs in a file: the disk does not answer")
        self._copier.close()
        if self._memory is not None:
            try:
                self._memory.presence.leave(self._memory.store.empty)
            except OSError as error:
                log.warning("the KV tier's memory is not given back: %s", error)
        self._levels.close()


def open_tier(
    config: TierConfig,
    content_hash: str,
    layout: KVLayout,
    open_copier: Callable[[], BlockCopier],
    shared_memory: Path = SHARED_MEMORY,
) -> Tier | None:
    """The tier with its thread started; None when it is not asked for.

    ``content_hash`` stands for the model's configuration and weights; ``open_copier`` gives access
    to the pool, which must outlive the tier. Raises ConfigError for settings that cannot be met,
    UnavailableError where a folder cannot be used, and what ``open_copier`` does.
    """
    _check(config)
    if not config.wanted:
        return None
    of = identity(content_hash, layout)
    try:
        disk = None if config.disk_path is None else _disk(config.disk_path, config.disk_bytes, of)
        memory = _memory(config.memory_bytes, of, shared_memory, disk)
    except OSError as error:
        raise UnavailableError(f"the KV tier cannot be opened: {error}") from error
    levels = Levels(
        [
            *([] if memory is None else [Level("memory", memory.store)]),
            *([] if disk is None else [disk]),
        ]
    )
    copier = open_copier()
    thread = TierThread(levels, copier)
    thread.start()
    return Tier(thread, copier, levels, memory)


def _check(config: TierConfig) -> None:
    if config.memory_bytes < 0:
        raise ConfigError(f"{MEMORY_FLAG} is {config.memory_bytes}; 0 is without that level")
    if config.disk_path is None and config.disk_bytes:
        raise ConfigError(f"{DISK_BYTES_FLAG} is given without a folder: add {DISK_FLAG}")
    if config.disk_path is not None and config.disk_bytes < 1:
        raise ConfigError(f"{DISK_FLAG} is given without a size: add {DISK_BYTES_FLAG}")


def _disk(path: Path, nbytes: int, of: Identity) -> Level:
    # The operator may give a link; what counts is the folder that it leads to.
    folder = path.expanduser().resolve()
    private_folder(folder, DISK_FLAG)
    check_room(folder, nbytes, DISK_BYTES_FLAG, "lower it, or give a folder on a larger disk")
    return Level("disk", FolderTier(folder, nbytes, of))


def _memory(nbytes: int, of: Identity, shared_memory: Path, disk: Level | None) -> _Memory | None:
    """What has to leave it goes to ``disk``."""
    if not nbytes:
        return None
    own = shared_memory / f"splitserve-{os.geteuid()}"
    folder = own / "kv"
    private_folder(own, MEMORY_FLAG)
    private_folder(folder, MEMORY_FLAG)
    cure = "lower it, or give more shared memory (containers: --shm-size)"
    check_room(folder, nbytes, MEMORY_FLAG, cure)
    presence = Presence(folder / ".users")
    evicted: Callable[[str, Path], object] = forget if disk is None else disk.take
    return _Memory(FolderTier(folder, nbytes, of, evicted), presence)
