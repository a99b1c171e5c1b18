"""The KV pool on a GPU: one plain allocation that another process can open (CUDA IPC)."""

from typing import Any

import torch
from cuda.bindings import runtime
from torch import Tensor

from splitserve.errors import UnavailableError
from splitserve.protocol.memory import KVLayout, MemoryRegion


class CudaPool:
    """``layers[i]`` is ``[block, K/V, kv_head, slot, head_dim]``, as ``layout`` says.

    Not from torch's allocator: that carves tensors out of larger stretches, and a handle always
    opens the whole stretch.
    """

    def __init__(self, layout: KVLayout, dtype: torch.dtype, device: torch.device) -> None:
        """Raises UnavailableError when the device does not give so much memory."""
        self.layout = layout
        self._device = device
        with torch.cuda.device(device):
            error, address = runtime.cudaMalloc(layout.pool_bytes)
        if int(error) != 0:
            # The error would otherwise be found by the next kernel launch.
            runtime.cudaGetLastError()
            raise UnavailableError(
                f"no {layout.pool_bytes} bytes for the KV pool on {device} ({error.name}): lower "
                "gpu_memory_utilization or kv_cache_memory_bytes"
            )
        self._address = int(address)
        raw = torch.as_tensor(_Raw(self._address, layout.pool_bytes), device=device)
        shape = (layout.num_layers, layout.num_blocks, 2)
        pool = raw.view(dtype).view(*shape, layout.num_kv_heads, layout.block_size, layout.head_dim)
        # Attention multiplies what lies beyond a sequence's end by zero: it must be a number.
        pool.zero_()
        self.layers: tuple[Tensor, ...] = pool.unbind()

    def region(self) -> MemoryRegion:
        return MemoryRegion(self._address, self.layout.pool_bytes, str(self._device))

    def close(self) -> None:
        """May be called twice. What still uses ``layers`` must not run any more."""
        self.layers = ()
        if self._address:
            with torch.cuda.device(self._device):
                torch.cuda.synchronize()
                runtime.cudaFree(self._address)
            self._address = 0


class _Raw:
    """What torch needs to see memory that it did not allocate."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
