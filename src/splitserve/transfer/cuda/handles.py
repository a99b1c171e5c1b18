"""CUDA's handles of memory that another process may open, for which torch has no call.

Every call is made on the device that is to be current, since CUDA opens a handle for that one.
"""

import ctypes
from typing import Any, Final

import torch
from cuda.bindings import driver, runtime

from splitserve.errors import ConfigError, SplitserveError, TransferFailed

HANDLE_BYTES: Final = 64


def export_handle(device: torch.device, address: int, nbytes: int) -> bytes:
    """The handle of the pool at ``address``.

    Raises ConfigError unless it is one allocation of its own: a handle always opens the whole
    allocation, so a peer would take its start for the pool's.
    """
    with torch.cuda.device(device):
        found = driver.cuMemGetAddressRange(address)
        base, size = _checked(found, ConfigError, "cannot look the KV pool up")
        if int(base) != address or int(size) < nbytes:
            raise ConfigError(
                "connector cuda_ipc needs a KV pool that is one cudaMalloc of its own"
            )
        made = runtime.cudaIpcGetMemHandle(address)
        handle = _checked(made, ConfigError, "the KV pool cannot be shared between processes")
    return ctypes.string_at(handle.getPtr(), HANDLE_BYTES)


def open_handle(device: torch.device, handle: bytes) -> int:
    """The address of a peer's pool, for kernels of ``device``. Raises TransferFailed."""
    if len(handle) != HANDLE_BYTES:
        raise TransferFailed(f"a CUDA handle has {HANDLE_BYTES} bytes, the peer's {len(handle)}")
    asked = runtime.cudaIpcMemHandle_t()
    ctypes.memmove(asked.getPtr(), handle, HANDLE_BYTES)
    with torch.cuda.device(device):
        opened = runtime.cudaIpcOpenMemHandle(asked, runtime.cudaIpcMemLazyEnablePeerAccess)
        return int(
            _checked(
                opened,
                TransferFailed,
                "cannot open the peer's KV pool: both workers must run on one host, each must see "
                "both GPUs, and those must have peer access",
            )
        )


def close_handle(device: torch.device, address: int) -> None:
    """Gives up what ``open_handle`` opened. Raises TransferFailed."""
    with torch.cuda.device(device):
        _checked(
            runtime.cudaIpcCloseMemHandle(address), TransferFailed, "cannot close a peer's KV pool"
        )


def _checked(result: tuple[Any, ...], kind: type[SplitserveError], what: str) -> Any:
    """What a call gave besides its status. Raises ``kind`` naming what CUDA calls the error."""
    status, *values = result
    if int(status) != 0:
        # Left there, the error would be taken for one of the next kernel launch.
        runtime.cudaGetLastError()
        raise kind(f"{what} ({status.name})")
    return values[0] if len(values) == 1 else values
