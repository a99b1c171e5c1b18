"""The kernels between the matrix products, each one pass over memory, and the product of one row.
Written in Triton.

A step's tokens come as records ``[tokens, 4]`` of int32: token id, number of the choice that it
follows (-1: none), position, KV slot (-1: stored nowhere). One record buffer means one copy to the
device a step, whatever the step is.
"""

from typing import Any, Final

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

RECORD_ITEMS: Final = 4

_FEW_TOKENS: Final = 64
"""Up to here a program for each token and head fills the device better than one for many."""

_ROPE_TOKENS: Final = 16
_SILU_COLUMNS: Final = 1024

_MANY_OUTPUTS: Final = 16384
"""From here on there are programs enough when each takes eight rows of the weight, not four."""

_VECTOR_COLUMNS: Final = 512

Grid = tuple[int, int, int]


class Kernels:
    """Launches them. Keeps each compiled kernel: Triton's own search for it takes longer on the
    host than most of them do on the device.

    Tensors start at multiples of 16 bytes, as torch allocates them, and so do their rows.
    """

    def __init__(self) -> None:
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def embed(
        self, records: Tensor, chosen: Tensor, table: Tensor, norm: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """The stream ``[tokens, hidden]`` and what its first normalisation makes of it.

        ``records [tokens, 4]``, ``chosen [choices]`` int32 (what the launch before chose), ``table
        [vocab, hidden]``, ``norm [hidden]``.
        """
        tokens, hidden = len(records), table.shape[1]
        x = torch.empty((tokens, hidden), dtype=table.dtype, device=table.device)
        h = torch.empty_like(x)
        tensors = (records, chosen, table, norm, x, h)
        self._run(_embed, (tokens, 1, 1), tensors, (eps,), *_row(hidden))
        return x, h

    def add_norm(self, x: Tensor, delta: Tensor, norm: Tensor, eps: float) -> Tensor:
        """Adds ``delta`` to the stream ``x`` in place and returns the normalised sum.

        All ``[tokens, hidden]``; ``norm [hidden]``.
        """
        h = torch.empty_like(x)
        tokens, hidden = x.shape
        self._run(_add_norm, (tokens, 1, 1), (x, delta, norm, h), (eps,), *_row(hidden))
        return h

    def rotate_and_store(
        self,
        qkv: Tensor,
        records: Tensor,
        turns: Tensor,
        norms: Tensor | None,
        eps: float,
        pool: Tensor,
        heads: int,
    ) -> Tensor:
        """Rotates queries and keys, stores keys and values into the pool, returns the queries.

        ``qkv [tokens, (heads + 2 * kv_heads) * head_dim]``; ``turns [positions, head_dim]``
        float32, cosines then sines; ``norms [2, head_dim]`` for queries and keys, or None; ``pool
        [block, 2, kv_heads, slot, head_dim]``. Returns ``[tokens, heads, head_dim]``.
        """
        tokens, head_dim = len(qkv), turns.shape[1]
        _, _, kv_heads, block_size, _ = pool.shape
        q = torch.empty((tokens, heads, head_dim), dtype=qkv.dtype, device=qkv.device)
        together = 1 if tokens <= _FEW_TOKENS else _ROPE_TOKENS
        self._run(
            _rotate_and_store,
            (triton.cdiv(tokens, together), heads + 2 * kv_heads, 1),
            (qkv, records, turns, turns if norms is None else norms, q, pool),
            (tokens, eps),
            (heads, kv_heads, block_size, head_dim // 2, together, norms is not None),
            1 if together == 1 else 4,
        )
        return q

    def linear(
        self, x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        """``x W^T + b`` for ``x [tokens, in]``, ``weight [out, in]``, ``bias [out]``.

        ``out``, without a bias only, is where the result is to lie. One token alone reads the
        weight at 0.9 of the memory's rate; cuBLAS, made for more, at 0.8 (H200, over a layer of
        Qwen2.5-7B: 3.8 and 3.4 TB/s).
        """
        if len(x) > 1:
            return F.linear(x, weight, bias) if out is None else torch.mm(x, weight.t(), out=out)
        outputs, inputs = weight.shape
        if out is None:
            out = torch.empty((1, outputs), dtype=x.dtype, device=x.device)
        rows = 8 if outputs >= _MANY_OUTPUTS else 4
        self._run(
            _linear_one,
            (triton.cdiv(outputs, rows), 1, 1),
            (x, weight, out if bias is None else bias, out),
            (),
            (outputs, inputs, rows, _VECTOR_COLUMNS, bias is not None),
            4,
        )
        return out

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """``silu(gate) * up`` of ``[tokens, 2 * middle]``, gate first; ``[tokens, middle]``."""
        tokens, middle = len(gate_up), gate_up.shape[1] // 2
        out = torch.empty((tokens, middle), dtype=gate_up.dtype, device=gate_up.device)
        grid = (tokens, triton.cdiv(middle, _SILU_COLUMNS), 1)
        self._run(_silu_mul, grid, (gate_up, out), (), (middle, _SILU_COLUMNS), 4)
        return out

    def _run(
        self,
        kernel: Any,
        grid: Grid,
        tensors: tuple[Tensor, ...],
        numbers: tuple[float, ...],
        constants: tuple[int, ...],
        num_warps: int,
    ) -> None:
        """``constants`` are compiled in, ``numbers`` are not."""
        key = (kernel, tensors[0].dtype, constants)
        compiled = self._compiled.get(key)
        if compiled is None:
            found = kernel[grid](*tensors, *numbers, *constants, num_warps=num_warps)
            if found is not None:  # Triton's interpreter compiles nothing
                self._compiled[key] = found
        else:
            compiled[grid](*tensors, *numbers, *constants)


def _row(columns: int) -> tuple[tuple[int, int], int]:
    """Constants and warps of a program that takes a whole row."""
    block = triton.next_power_of_2(columns)
    return (columns, block), max(1, min(16, block // 512))


@triton.jit
def _embed(records, chosen, table, norm, x, h, eps, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    token = tl.load(records + row * 4)
    follows = tl.load(records + row * 4 + 1)
    token = tl.where(follows >= 0, tl.load(chosen + tl.maximum(follows, 0)), token)
    at = tl.arange(0, BLOCK)
    inside = at < HIDDEN
    found = tl.load(table + token.to(tl.int64) * HIDDEN + at, mask=inside, other=0.0)
    out = row.to(tl.int64) * HIDDEN + at
    tl.store(x + out, found, mask=inside)
    wide = found.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / HIDDEN + eps)
    weight = tl.load(norm + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(h + out, (wide * scale * weight).to(h.dtype.element_ty), mask=inside)


@triton.jit
def _add_norm(x, delta, norm, h, eps, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < HIDDEN
    out = row * HIDDEN + at
    wide = tl.load(x + out, mask=inside, other=0.0).to(tl.float32)
    wide += tl.load(delta + out, mask=inside, other=0.0).to(tl.float32)
    rounded = wide.to(x.dtype.element_ty)
    tl.store(x + out, rounded, mask=inside)
    wide = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / HIDDEN + eps)
    weight = tl.load(norm + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(h + out, (wide * scale * weight).to(h.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tokens"])
def _rotate_and_store(
    qkv,
    records,
    turns,
    norms,
    q,
    pool,
    tokens,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HALF: tl.constexpr,
    TOKENS: tl.constexpr,
    NORMED: tl.constexpr,
):
    row = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    head = tl.program_id(1)
    here = row < tokens
    wide_row = row.to(tl.int64)
    position = tl.load(records + wide_row * 4 + 2, mask=here, other=0).to(tl.int64)
    slot = tl.load(records + wide_row * 4 + 3, mask=here, other=-1).to(tl.int64)
    at = tl.arange(0, HALF)
    source = (wide_row * (HEADS + 2 * KV_HEADS) + head)[:, None] * (2 * HALF) + at[None, :]
    mask = here[:, None] & (at[None, :] < HALF)
    low = tl.load(qkv + source, mask=mask, other=0.0)
    high = tl.load(qkv + source + HALF, mask=mask, other=0.0)
    # Where a key or value of this head goes; values come after all keys of a block.
    kv_head = head - HEADS
    block = slot // BLOCK_SIZE
    base = (block * (2 * KV_HEADS) + kv_head) * BLOCK_SIZE + slot % BLOCK_SIZE
    stored = (base * (2 * HALF))[:, None] + at[None, :]
    kept = mask & (slot >= 0)[:, None]
    if head >= HEADS + KV_HEADS:
        tl.store(pool + stored, low, mask=kept)
        tl.store(pool + stored + HALF, high, mask=kept)
    else:
        low_wide = low.to(tl.float32)
        high_wide = high.to(tl.float32)
        if NORMED:
            total = tl.sum(low_wide * low_wide, 1) + tl.sum(high_wide * high_wide, 1)
            scale = tl.rsqrt(total / (2 * HALF) + eps)[:, None]
            which = norms + tl.where(head < HEADS, 0, 2 * HALF)
            # Rounded as between separate operations, which is what checkpoints were trained with.
            low_wide = low_wide * scale * tl.load(which + at).to(tl.float32)[None, :]
            high_wide = high_wide * scale * tl.load(which + HALF + at).to(tl.float32)[None, :]
            low_wide = low_wide.to(low.dtype).to(tl.float32)
            high_wide = high_wide.to(low.dtype).to(tl.float32)
        turn = position[:, None] * (2 * HALF) + at[None, :]
        cos = tl.load(turns + turn, mask=mask, other=0.0)
        sin = tl.load(turns + turn + HALF, mask=mask, other=0.0)
        new_low = (low_wide * cos - high_wide * sin).to(low.dtype)
        new_high = (high_wide * cos + low_wide * sin).to(low.dtype)
        if head < HEADS:
            target = (wide_row * HEADS + head)[:, None] * (2 * HALF) + at[None, :]
            tl.store(q + target, new_low, mask=mask)
            tl.store(q + target + HALF, new_high, mask=mask)
        else:
            tl.store(pool + stored, new_low, mask=kept)
            tl.store(pool + stored + HALF, new_high, mask=kept)


@triton.jit
def _linear_one(
    x,
    weight,
    bias,
    out,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BIASED: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = row < OUTPUTS
    start = row.to(tl.int64)[:, None] * INPUTS
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, INPUTS, COLUMNS):
        at = first + tl.arange(0, COLUMNS)
        inside = at < INPUTS
        mask = here[:, None] & inside[None, :]
        part = tl.load(weight + start + at[None, :], mask=mask, other=0.0).to(tl.float32)
        total += part * tl.load(x + at, mask=inside, other=0.0).to(tl.float32)[None, :]
    result = tl.sum(total, 1)
    if BIASED:
        result += tl.load(bias + row, mask=here, other=0.0).to(tl.float32)
    tl.store(out + row, result.to(out.dtype.element_ty), mask=here)


@triton.jit
def _silu_mul(gate_up, out, MIDDLE: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = at < MIDDLE
    gate = tl.load(gate_up + row * 2 * MIDDLE + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * MIDDLE + MIDDLE + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(
        out + row * MIDDLE + at,
        (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty),
        mask=inside,
    )
