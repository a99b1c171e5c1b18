"""A KV pool without an engine on a GPU, for measuring connectors."""

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import torch
from cuda.bindings import runtime

from splitserve.errors import UnavailableError
from splitserve.protocol.memory import KVLayout, MemoryRegion


def places() -> tuple[int, int]:
    """The GPUs that a handoff is measured between, pushing side first: the same one where there is
    only one. Raises UnavailableError where there is none."""
    count = torch.cuda.device_count()
    if count == 0:
        raise UnavailableError("torch sees no GPU")
    return 0, min(1, count - 1)


class DevicePool:
    """``layout.pool_bytes`` by cudaMalloc on GPU ``index``, zeroed.

    ``memory`` is all of it as uint8. ``copy_to`` is the GPU that plain copies go to.
    """

    def __init__(self, layout: KVLayout, index: int, copy_to: int) -> None:
        """Raises UnavailableError when the GPU has no room."""
        self._on = torch.device("cuda", index)
        self._copy_to = torch.device("cuda", copy_to)
        with torch.cuda.device(self._on):
            error, address = runtime.cudaMalloc(layout.pool_bytes)
        if int(error) != 0:
            raise UnavailableError(f"no {layout.pool_bytes} bytes on {self._on}: {error.name}")
        self.layout = layout
        self.device = f"{self._on} {torch.cuda.get_device_name(self._on)}"
        self.region = MemoryRegion(int(address), layout.pool_bytes, str(self._on))
        self.memory = torch.as_tensor(_Allocation(self.region), device=self._on)
        self.memory.zero_()
        torch.cuda.synchronize(self._on)

    def fill(self) -> None:
        """With random bytes."""
        self.memory.random_()
        torch.cuda.synchronize(self._on)

    def digest(self, blocks: Sequence[int]) -> bytes:
        """SHA-256 of these blocks of all layers, in this order."""
        made = hashlib.sha256()
        shape = self.layout.num_layers, self.layout.num_blocks, self.layout.block_bytes
        chosen = torch.tensor(blocks, device=self._on)
        for layer in self.memory.view(shape):
            made.update(layer[chosen].cpu().numpy())
        return made.digest()

    def plain_copy_s(self, nbytes: int) -> float:
        """torch's own copy of ``nbytes`` in one piece."""
        target = torch.empty(nbytes, dtype=torch.uint8, device=self._copy_to)
        for device in (self._on, self._copy_to):
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        target.copy_(self.memory[:nbytes], non_blocking=True)
        for device in (self._on, self._copy_to):
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    def close(self) -> None:
        torch.cuda.synchronize(self._on)
        del self.memory
        with torch.cuda.device(self._on):
            runtime.cudaFree(self.region.address)


class _Allocation:
    """How torch is told of memory that it did not allocate."""

    def __init__(self, region: MemoryRegion) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (region.nbytes,),
            "typestr": "|u1",
            "data": (region.address, False),
            "version": 3,
        }
