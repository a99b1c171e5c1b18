"""The memory behind the KV blocks: shared, so that another process can write into it."""

import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from splitserve.errors import UnavailableError
from splitserve.protocol.memory import KVLayout, MemoryRegion


@dataclass(frozen=True, slots=True)
class KVLayer:
    """Two views of one layer's ``[block, K/V, kv_head, slot, head_dim]``.

    ``rows [block * K/V * kv_head * slot, head_dim]`` is for storing tokens, ``runs [block * K/V *
    kv_head, slot * head_dim]`` for reading blocks.
    """

    rows: Tensor
    runs: Tensor


class KVPool:
    """One flat buffer, laid out as ``layout`` says. No value is kept anywhere else.

    Pages take memory once they are written.
    """

    def __init__(self, layout: KVLayout, dtype: torch.dtype) -> None:
        """Raises UnavailableError when the system does not give so much memory."""
        self.layout = layout
        self._fd, memory = _shared_memory(layout.pool_bytes)
        flat = torch.frombuffer(memory, dtype=dtype)
        self._address = flat.data_ptr()
        run = layout.block_size * layout.head_dim
        self.layers: tuple[KVLayer, ...] = tuple(
            KVLayer(layer.view(-1, layout.head_dim), layer.view(-1, run))
            for layer in flat.chunk(layout.num_layers)
        )

    def region(self) -> MemoryRegion:
        """The whole pool; its file descriptor is valid until ``close``."""
        return MemoryRegion(self._address, self.layout.pool_bytes, "cpu", self._fd)

    def close(self) -> None:
        """Gives the memory back once the last view of it is gone. May be called twice."""
        self.layers = ()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _shared_memory(nbytes: int) -> tuple[int, mmap.mmap]:
    """A file without a name, ``nbytes`` long, and what it maps to."""
    try:
        fd = _unnamed_file()
        try:
            os.ftruncate(fd, nbytes)
            return fd, mmap.mmap(fd, nbytes)
        except OSError:
            os.close(fd)
            raise
    except OSError as error:
        raise UnavailableError(
            f"no {nbytes} bytes of shared memory ({error.strerror}): lower kv_cache_memory_bytes"
        ) from error


def _unnamed_file() -> int:
    """In memory, or on disk where the system has no memfd."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("splitserve-kv")
    fd, path = tempfile.mkstemp(prefix="splitserve-kv-")
    Path(path).unlink()
    return fd
