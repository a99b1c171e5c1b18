"""Blocks of a pool on a GPU by way of pinned memory of this process: what the KV tier copies.

CUDA's driver alone, in the engine's own context: a stream of its own beside the engine's, and
nothing that torch would have to know of.
"""

import ctypes
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from cuda.bindings import driver

from splitserve.errors import BugError, ConfigError, SplitserveError, UnavailableError
from splitserve.protocol.memory import KVLayout, MemoryRegion

PAUSE_S: Final = 2e-5
"""Between two looks at a copy, in which the engine's thread has the interpreter: a call that waits
for the device may keep it."""

_NON_BLOCKING: Final = 1
"""CU_STREAM_NON_BLOCKING: in no order with the default stream, on which the engine may work."""


class CudaBlockCopier:
    """Implements the tier's BlockCopier. Has pinned memory for one block, of all layers.

    What the engine stored in a block is there once its step has been collected, which is before the
    block has a name and can be asked for here; what is brought is there when ``from_host`` returns,
    before any step that reads it is launched. So neither waits for the engine's stream.
    """

    def __init__(self, region: MemoryRegion, layout: KVLayout) -> None:
        """The pool must outlive this. Raises ConfigError where there is no such GPU and
        UnavailableError where it gives no memory."""
        if layout.pool_bytes > region.nbytes:
            raise BugError(f"the KV pool has {region.nbytes} bytes, not {layout.pool_bytes}")
        self._address = region.address
        self._layout = layout
        self._landing: int | None = None
        _checked(driver.cuInit(0), ConfigError)
        self._device = _checked(driver.cuDeviceGet(_gpu_of(region)), ConfigError)
        self._context = _checked(driver.cuDevicePrimaryCtxRetain(self._device), UnavailableError)
        nbytes = layout.block_bytes * layout.num_layers
        with self._current():
            self._staging = int(_checked(driver.cuMemHostAlloc(nbytes, 0), UnavailableError))
            self._stream = _checked(driver.cuStreamCreate(_NON_BLOCKING), UnavailableError)
        staging = (ctypes.c_char * nbytes).from_address(self._staging)
        self._memory: memoryview | None = memoryview(staging).cast("B")

    def to_host(self, block: int) -> Sequence[memoryview]:
        """Raises UnavailableError when the GPU cannot be copied from."""
        parts = self._parts(block)
        self._landing = None
        with self._current():
            for host, device, nbytes in self._copies(block):
                copied = driver.cuMemcpyDtoHAsync(host, device, nbytes, self._stream)
                _checked(copied, UnavailableError)
            self._wait()
        return parts

    def landing(self, block: int) -> Sequence[memoryview]:
        parts = self._parts(block)
        self._landing = block
        return parts

    def from_host(self, block: int) -> None:
        """Raises UnavailableError when the GPU cannot be copied to."""
        if self._landing != block:
            raise BugError(f"nothing has landed for block {block}")
        self._landing = None
        with self._current():
            for host, device, nbytes in self._copies(block):
                copied = driver.cuMemcpyHtoDAsync(device, host, nbytes, self._stream)
                _checked(copied, UnavailableError)
            self._wait()

    def close(self) -> None:
        """No part that was given may be used any more. May be called twice."""
        if self._memory is None:
            return
        self._memory = None
        with self._current():
            _checked(driver.cuStreamDestroy(self._stream), UnavailableError)
            _checked(driver.cuMemFreeHost(self._staging), UnavailableError)
        _checked(driver.cuDevicePrimaryCtxRelease(self._device), UnavailableError)

    def _parts(self, block: int) -> list[memoryview]:
        """Those of the pinned memory, whichever block is in it."""
        layout = self._layout
        if not 0 <= block < layout.num_blocks:
            raise BugError(f"there is no block {block} in a pool of {layout.num_blocks}")
        if self._memory is None:
            raise BugError("the copier is used after close")
        size = layout.block_bytes
        return [self._memory[n * size : (n + 1) * size] for n in range(layout.num_layers)]

    def _copies(self, block: int) -> Iterator[tuple[int, int, int]]:
        """Address in the pinned memory, address in the pool, bytes. One copy for each layer: from
        layer to layer it is further than CUDA's copies in two dimensions can step."""
        layout = self._layout
        for layer in range(layout.num_layers):
            host = self._staging + layer * layout.block_bytes
            yield host, self._address + layout.offset(layer, block), layout.block_bytes

    def _wait(self) -> None:
        while True:
            asked = driver.cuStreamQuery(self._stream)
            if asked[0] != driver.CUresult.CUDA_ERROR_NOT_READY:
                _checked(asked, UnavailableError)
                return
            time.sleep(PAUSE_S)

    @contextmanager
    def _current(self) -> Iterator[None]:
        """The GPU is the calling thread's own within it. What was before is so again after it."""
        _checked(driver.cuCtxPushCurrent(self._context), UnavailableError)
        try:
            yield
        finally:
            driver.cuCtxPopCurrent()


def _gpu_of(region: MemoryRegion) -> int:
    match = re.fullmatch(r"cuda:(\d+)", region.device)
    if match is None:
        raise BugError(f"the KV pool is on {region.device} and not on a GPU")
    return int(match[1])


def _checked(result: tuple[Any, ...], kind: type[SplitserveError]) -> Any:
    """What a call gave beside its status. Raises ``kind`` naming what CUDA calls the error."""
    status, *values = result
    if int(status) != 0:
        raise kind(f"the KV tier cannot use the GPU's memory ({status.name})")
    return values[0] if values else None
