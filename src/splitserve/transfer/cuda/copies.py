"""Copies between a pool on this device and another process's, on a stream beside the engine's.

One kernel copies all pieces of one layer. Which ones it reads from a table on the device, so that a
copy costs the engine's thread the same for one piece and for thousands.
"""

from array import array
from dataclasses import dataclass, field
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from splitserve.errors import ConfigError, TransferFailed
from splitserve.transfer.cuda.handles import close_handle, export_handle, open_handle

_PART_WORDS: Final = 1024
"""Words that one program copies: with 8-byte words a quarter of a usual block."""

_ALIGNED: Final = 16
"""Bytes to which an address must be aligned for the kernel that was compiled for such ones."""


_WORD_TYPES: Final = (torch.int64, torch.int32, torch.int16, torch.uint8)
"""Widest first: a piece is copied in the widest words that it is a whole number of."""


@triton.jit  # type: ignore[untyped-decorator]
def copy_pieces(
    source: tl.tensor, target: tl.tensor, pairs: tl.tensor, WORDS: tl.constexpr, PART: tl.constexpr
) -> None:
    """``target[pairs[i, 1]] = source[pairs[i, 0]]``, pieces of ``WORDS`` words.

    ``pairs [pieces, 2]`` int32. Programs ``[pieces, ceil(WORDS / PART)]``.
    """
    pair = pairs + 2 * tl.program_id(0)
    read = source + tl.load(pair).to(tl.int64) * WORDS
    write = target + tl.load(pair + 1).to(tl.int64) * WORDS
    words = tl.program_id(1) * PART + tl.arange(0, PART)
    inside = words < WORDS
    tl.store(write + words, tl.load(read + words, mask=inside), mask=inside)


@dataclass(slots=True)
class _Shape:
    """How pieces of one size are copied. ``compiled`` is the kernel for aligned addresses, known
    after its first launch."""

    word: torch.dtype
    words: int
    part: int
    compiled: Any = field(default=None)


class CudaCopies:
    """The CopyDevice of GPU ``index``, for a pool with blocks of ``block_bytes``."""

    def __init__(self, index: int, block_bytes: int) -> None:
        """Raises ConfigError when there is no such GPU."""
        if index >= torch.cuda.device_count():
            raise ConfigError(f"there is no cuda:{index}; torch sees {torch.cuda.device_count()}")
        self._device = torch.device("cuda", index)
        self._block_bytes = block_bytes
        self._shapes: dict[int, _Shape] = {}
        self._stream = torch.cuda.Stream(self._device)
        self._stored = torch.cuda.Event()
        self._free: list[torch.cuda.Event] = []
        self.uuid = _uuid(index)

    def export(self, address: int, nbytes: int) -> bytes:
        """The handle of the pool at ``address``. Raises ConfigError.

        Also makes the kernel for whole blocks and torch's small buffers, which would otherwise hold
        the first prompt up.
        """
        handle = export_handle(self._device, address, nbytes)
        shape = self._shape(self._block_bytes)
        self._launch(self._upload(array("i", (0, 0))), 0, shape, address, address)
        self._stream.synchronize()
        return handle

    def map(self, handle: bytes, uuid: str) -> int:
        """The address here of a peer's pool on GPU ``uuid``. Raises TransferFailed."""
        self._check_reach(uuid)
        return open_handle(self._device, handle)

    def unmap(self, address: int) -> None:
        """Raises TransferFailed."""
        close_handle(self._device, address)

    def copier(self, pairs: "array[int]", piece: int) -> "_Copier":
        """``pairs``: source and target in turn, as numbers of pieces of ``piece`` bytes."""
        return _Copier(self, self._upload(pairs), len(pairs) // 2, self._shape(piece))

    def copy(self, table: Tensor, pieces: int, shape: _Shape, source: int, target: int) -> "_Mark":
        """Copies once all that the engine's stream was given so far is done. Never waits."""
        self._stored.record(torch.cuda.current_stream(self._device))
        self._stream.wait_event(self._stored)
        self._launch(table, pieces, shape, source, target)
        event = self._free.pop() if self._free else torch.cuda.Event()
        event.record(self._stream)
        return _Mark(event, self._free)

    def _shape(self, piece: int) -> _Shape:
        if piece not in self._shapes:
            word = next(word for word in _WORD_TYPES if piece % word.itemsize == 0)
            words = piece // word.itemsize
            part = min(_PART_WORDS, triton.next_power_of_2(words))
            self._shapes[piece] = _Shape(word, words, part)
        return self._shapes[piece]

    def _upload(self, pairs: "array[int]") -> Tensor:
        # torch does not give pinned memory out again before the copy from it is done, nor memory of
        # a stream before what that stream does with it.
        host = torch.empty(len(pairs), dtype=torch.int32, pin_memory=True)
        host.numpy()[:] = pairs
        with torch.cuda.stream(self._stream):
            return host.to(self._device, non_blocking=True)

    def _launch(self, table: Tensor, pieces: int, shape: _Shape, source: int, target: int) -> None:
        grid = (pieces, triton.cdiv(shape.words, shape.part), 1)
        aligned = source % _ALIGNED == 0 and target % _ALIGNED == 0
        if aligned and shape.compiled is not None:
            # Without the search for the right kernel, which takes as long as the copy of a layer.
            stream = self._stream.cuda_stream
            shape.compiled[grid](source, target, table, shape.words, shape.part, stream=stream)
            return
        pools = _Address(source, shape.word), _Address(target, shape.word)
        with torch.cuda.stream(self._stream):
            compiled = copy_pieces[grid](*pools, table, shape.words, shape.part)
        if aligned:
            shape.compiled = compiled

    def _check_reach(self, uuid: str) -> None:
        seen = {_uuid(index): index for index in range(torch.cuda.device_count())}
        if uuid not in seen:
            raise TransferFailed(
                f"the peer's GPU {uuid} is not visible here: both workers must run on one host, "
                "and CUDA_VISIBLE_DEVICES of each must name both GPUs"
            )
        own, theirs = self._device.index, seen[uuid]
        if own != theirs and not torch.cuda.can_device_access_peer(own, theirs):
            raise TransferFailed(
                f"cuda:{own} has no peer access to cuda:{theirs}: connector cuda_ipc needs GPUs "
                "that NVLink or one PCIe root joins"
            )


class _Copier:
    """One set of pieces, listed on the device."""

    def __init__(self, copies: CudaCopies, table: Tensor, pieces: int, shape: _Shape) -> None:
        self._copies = copies
        self._table = table
        self._pieces = pieces
        self._shape = shape

    def copy(self, source: int, target: int) -> "_Mark":
        return self._copies.copy(self._table, self._pieces, self._shape, source, target)


class _Mark:
    """The end of one copy. Its event is used again once ``ended`` was true."""

    def __init__(self, event: torch.cuda.Event, free: list[torch.cuda.Event]) -> None:
        self._event = event
        self._free = free

    def ended(self) -> bool:
        if not self._event.query():
            return False
        self._free.append(self._event)
        return True

    def wait(self) -> None:
        self._event.synchronize()


class _Address:
    """What Triton takes for a tensor: memory that torch did not allocate."""

    def __init__(self, address: int, dtype: torch.dtype) -> None:
        self._address = address
        self.dtype = dtype

    def data_ptr(self) -> int:
        return self._address


def _uuid(index: int) -> str:
    return str(torch.cuda.get_device_properties(index).uuid)
