"""The memory behind the KV blocks: shared, so that another process can write into it."""

import mmap
import os
import tempfile
from dataclasses import dataclass

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
        self.layout = layout
        self._fd = _shared_file(layout.pool_bytes)
        memory = mmap.mmap(self._fd, layout.pool_bytes)
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


def _shared_file(nbytes: int) -> int:
    """A file without a name in memory (on disk where the system has no memfd), ``nbytes`` long."""
    try:
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("splitserve-kv")
        else:
            fd, path = tempfile.mkstemp(prefix="splitserve-kv-")
            os.unlink(path)  # noqa: PTH108
        os.ftruncate(fd, nbytes)
    except OSError as error:
        raise UnavailableError(f"no {nbytes} bytes of shared memory: {error.strerror}") from error
    return fd
