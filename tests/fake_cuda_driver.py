"""As much of CUDA's driver as block copies need, over memory of this process.

Copies are done when the stream has been asked for the second time, as they are then; whatever needs
a current context fails without one.
"""

import ctypes
import enum
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

from splitserve.loading import load
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.tier.copier import BlockCopier

MODULE = "splitserve.transfer.cuda.block_copier"


class Result(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


OK = Result.CUDA_SUCCESS
CONTEXT, STREAM = 77, 88


class FakeDriver(ModuleType):
    """One GPU. ``pinned`` memory by address, ``current`` contexts, ``retained`` and ``streams``
    that were not given back. A call that is named in ``broken`` returns that instead."""

    CUresult = Result

    def __init__(self) -> None:
        super().__init__("driver")
        self.pinned: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.current: list[int] = []
        self.retained = self.streams = 0
        self.broken: dict[str, Result] = {}
        self._copies: deque[Callable[[], object]] = deque()
        self._asked = False

    def cuInit(self, flags: int) -> tuple[Any, ...]:
        assert flags == 0
        return (OK,)

    def cuDeviceGet(self, ordinal: int) -> tuple[Any, ...]:
        return (OK, ordinal) if ordinal == 0 else (Result.CUDA_ERROR_INVALID_DEVICE, 0)

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, ...]:
        self.retained += 1
        return (OK, CONTEXT)

    def cuDevicePrimaryCtxRelease(self, device: int) -> tuple[Any, ...]:
        self.retained -= 1
        return (OK,)

    def cuCtxPushCurrent(self, context: int) -> tuple[Any, ...]:
        assert context == CONTEXT
        self.current.append(context)
        return (OK,)

    def cuCtxPopCurrent(self) -> tuple[Any, ...]:
        return OK, self.current.pop()

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> tuple[Any, ...]:
        assert flags == 0
        if (status := self._status("cuMemHostAlloc")) is not OK:
            return status, 0
        memory = ctypes.create_string_buffer(nbytes)
        address = ctypes.addressof(memory)
        self.pinned[address] = memory
        return OK, address

    def cuMemFreeHost(self, address: int) -> tuple[Any, ...]:
        del self.pinned[address]
        return (self._status("cuMemFreeHost"),)

    def cuStreamCreate(self, flags: int) -> tuple[Any, ...]:
        assert flags == 1
        self.streams += 1
        return self._status("cuStreamCreate"), STREAM

    def cuStreamDestroy(self, stream: int) -> tuple[Any, ...]:
        self.streams -= 1
        return (self._status("cuStreamDestroy"),)

    def cuStreamQuery(self, stream: int) -> tuple[Any, ...]:
        assert stream == STREAM
        self._asked = not self._asked
        if self._asked:
            return (Result.CUDA_ERROR_NOT_READY,)
        while self._copies:
            self._copies.popleft()()
        return (self._status("cuStreamQuery"),)

    def cuMemcpyDtoHAsync(self, host: int, device: int, count: int, stream: int) -> tuple[Any, ...]:
        return self._copy("cuMemcpyDtoHAsync", host, device, count)

    def cuMemcpyHtoDAsync(self, device: int, host: int, count: int, stream: int) -> tuple[Any, ...]:
        return self._copy("cuMemcpyHtoDAsync", device, host, count)

    def _copy(self, name: str, target: int, source: int, count: int) -> tuple[Any, ...]:
        self._copies.append(lambda: ctypes.memmove(target, source, count))
        return (self._status(name),)

    def _status(self, name: str) -> Result:
        return self.broken.get(name, OK) if self.current else Result.CUDA_ERROR_INVALID_CONTEXT


def cuda_copier(region: MemoryRegion, layout: KVLayout) -> BlockCopier:
    """Imported late: over the real driver or, while it is ``playing``, over this one."""
    copier: BlockCopier = load(f"{MODULE}:CudaBlockCopier")(region, layout)
    return copier


@contextmanager
def playing() -> Iterator[FakeDriver]:
    """The copier for GPUs, imported anew, has this driver."""
    driver, bindings = FakeDriver(), ModuleType("cuda.bindings")
    bindings.driver = driver  # type: ignore[attr-defined]
    modules = {"cuda": ModuleType("cuda"), "cuda.bindings": bindings}
    with patch.dict(sys.modules, modules):
        # What is imported within is forgotten with the patch.
        sys.modules.pop(MODULE, None)
        yield driver
