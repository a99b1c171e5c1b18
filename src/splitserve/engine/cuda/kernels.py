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


def embed(
    records: Tensor, chosen: Tensor, table: Tensor, norm: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The stream ``[tokens, hidden]`` and what its first normalisation makes of it.

    ``records [tokens, 4]``, ``chosen [choices]`` int32 (what the launch before chose), ``table
    [vocab, hidden]``, ``norm [hidden]``.
    """
    tokens, hidden = len(records), table.shape[1]
    x = torch.empty((tokens, hidden), dtype=table.dtype, device=table.device)
    h = torch.empty_like(x)
    _embed[(tokens,)](records, chosen, table, norm, x, h, hidden, eps, **_row(hidden))
    return x, h


def add_norm(x: Tensor, delta: Tensor, norm: Tensor, eps: float) -> Tensor:
    """Adds ``delta`` to the stream ``x`` in place and returns the normalised sum.

    All ``[tokens, hidden]``; ``norm [hidden]``.
    """
    h = torch.empty_like(x)
    hidden = x.shape[1]
    _add_norm[(len(x),)](x, delta, norm, h, hidden, eps, **_row(hidden))
    return h


def rotate_and_store(
    qkv: Tensor,
    records: Tensor,
    turns: Tensor,
    norms: Tensor | None,
    eps: float,
    pool: Tensor,
    heads: int,
) -> Tensor:
    """Rotates queries and keys, stores keys and values into the pool, returns the queries.

    ``qkv [tokens, (heads + 2 * kv_heads) * head_dim]``; ``turns [positions, head_dim]`` float32,
    cosines then sines; ``norms [2, head_dim]`` for queries and keys, or None; ``pool [block, 2,
    kv_heads, slot, head_dim]``. Returns ``[tokens, heads, head_dim]``.
    """
    tokens, head_dim = len(qkv), turns.shape[1]
    _, _, kv_heads, block_size, _ = pool.shape
    q = torch.empty((tokens, heads, head_dim), dtype=qkv.dtype, device=qkv.device)
    together = 1 if tokens <= _FEW_TOKENS else _ROPE_TOKENS
    grid = (triton.cdiv(tokens, together), heads + 2 * kv_heads)
    _rotate_and_store[grid](
        qkv,
        records,
        turns,
        turns if norms is None else norms,
        q,
        pool,
        tokens,
        eps,
        heads,
        kv_heads,
        block_size,
        HALF=head_dim // 2,
        TOKENS=together,
        NORMED=norms is not None,
        num_warps=1 if together == 1 else 4,
    )
    return q


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """``x W^T + b`` for ``x [tokens, in]``, ``weight [out, in]``, ``bias [out]``.

    ``out``, without a bias only, is where the result is to lie.

    One token alone reads the weight at 0.9 of the memory's rate; cuBLAS, made for more, at 0.8
    (H200, Qwen2.5-7B's shapes: 4.2 and 3.6 TB/s over a layer).
    """
    if len(x) > 1:
        return F.linear(x, weight, bias) if out is None else torch.mm(x, weight.t(), out=out)
    outputs, inputs = weight.shape
    if out is None:
        out = torch.empty((1, outputs), dtype=x.dtype, device=x.device)
    rows = 8 if outputs >= _MANY_OUTPUTS else 4
    _linear_one[(triton.cdiv(outputs, rows),)](
        x,
        weight,
        out if bias is None else bias,
        out,
        outputs,
        INPUTS=inputs,
        ROWS=rows,
        COLUMNS=_VECTOR_COLUMNS,
        BIASED=bias is not None,
        num_warps=4,
    )
    return out


def silu_mul(gate_up: Tensor) -> Tensor:
    """``silu(gate) * up`` of ``[tokens, 2 * middle]``, gate first; ``[tokens, middle]``."""
    tokens, middle = len(gate_up), gate_up.shape[1] // 2
    out = torch.empty((tokens, middle), dtype=gate_up.dtype, device=gate_up.device)
    grid = (tokens, triton.cdiv(middle, _SILU_COLUMNS))
    _silu_mul[grid](gate_up, out, middle, COLUMNS=_SILU_COLUMNS, num_warps=4)
    return out


def _row(columns: int) -> dict[str, Any]:
    """How a program takes a whole row."""
    block = triton.next_power_of_2(columns)
    return {"BLOCK": block, "num_warps": max(1, min(16, block // 512))}


@triton.jit
def _embed(records, chosen, table, norm, x, h, hidden, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    token = tl.load(records + row * 4)
    follows = tl.load(records + row * 4 + 1)
    token = tl.where(follows >= 0, tl.load(chosen + tl.maximum(follows, 0)), token)
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    found = tl.load(table + token.to(tl.int64) * hidden + at, mask=inside, other=0.0)
    out = row.to(tl.int64) * hidden + at
    tl.store(x + out, found, mask=inside)
    wide = found.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / hidden + eps)
    weight = tl.load(norm + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(h + out, (wide * scale * weight).to(h.dtype.element_ty), mask=inside)


@triton.jit
def _add_norm(x, delta, norm, h, hidden, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    out = row * hidden + at
    wide = tl.load(x + out, mask=inside, other=0.0).to(tl.float32)
    wide += tl.load(delta + out, mask=inside, other=0.0).to(tl.float32)
    rounded = wide.to(x.dtype.element_ty)
    tl.store(x + out, rounded, mask=inside)
    wide = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / hidden + eps)
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
    heads,
    kv_heads,
    block_size,
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
    source = (wide_row * (heads + 2 * kv_heads) + head)[:, None] * (2 * HALF) + at[None, :]
    mask = here[:, None] & (at[None, :] < HALF)
    low = tl.load(qkv + source, mask=mask, other=0.0)
    high = tl.load(qkv + source + HALF, mask=mask, other=0.0)
    # Where a key or value of this head goes; values come after all keys of a block.
    kv_head = head - heads
    block = slot // block_size
    base = (block * (2 * kv_heads) + kv_head) * block_size + slot % block_size
    stored = (base * (2 * HALF))[:, None] + at[None, :]
    kept = mask & (slot >= 0)[:, None]
    if head >= heads + kv_heads:
        tl.store(pool + stored, low, mask=kept)
        tl.store(pool + stored + HALF, high, mask=kept)
    else:
        low_wide = low.to(tl.float32)
        high_wide = high.to(tl.float32)
        if NORMED:
            total = tl.sum(low_wide * low_wide, 1) + tl.sum(high_wide * high_wide, 1)
            scale = tl.rsqrt(total / (2 * HALF) + eps)[:, None]
            which = norms + tl.where(head < heads, 0, 2 * HALF)
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
        if head < heads:
            target = (wide_row * heads + head)[:, None] * (2 * HALF) + at[None, :]
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
    outputs,
    INPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BIASED: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = row < outputs
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
def _silu_mul(gate_up, out, middle, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = at < middle
    gate = tl.load(gate_up + row * 2 * middle + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * middle + middle + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(
        out + row * middle + at,
        (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty),
        mask=inside,
    )
