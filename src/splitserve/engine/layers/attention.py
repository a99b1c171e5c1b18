"""Attention over paged keys and values: for single new tokens, and for stretches of a prompt.

Heads come as ``[tokens, kv_heads, group, head_dim]``: the ``group`` query heads that share a key
head lie together, so that keys and values are never repeated.
"""

import torch
from torch import Tensor

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def gather(layer: Tensor, index: Tensor, sequences: int) -> tuple[Tensor, Tensor]:
    """Keys and values of whole blocks, side by side: ``[sequences, kv_heads, positions, head_dim]``.

    ``layer`` is one layer of the pool; ``index`` is what ``gather_index`` made.
    """
    _, _, kv_heads, slots, head_dim = layer.shape
    rows = layer.view(-1, slots * head_dim).index_select(0, index)
    return rows.view(2, sequences, kv_heads, -1, head_dim).unbind()


def gather_index(tables: Tensor, kv_heads: int) -> Tensor:
    """Where the blocks of ``tables [sequences, blocks]`` lie, for ``gather``. Same for all layers.

    Numbers rows of a layer seen as ``[block * K/V * kv_head, slot * head_dim]``.
    """
    kv = torch.arange(2).view(2, 1, 1, 1)
    head = torch.arange(kv_heads).view(1, 1, kv_heads, 1)
    return ((tables[None, :, None, :] * 2 + kv) * kv_heads + head).flatten()


def attend_single(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """One new token per sequence.

    ``q [sequences, kv_heads, group, head_dim]``, ``k``, ``v`` as from ``gather``, ``mask
    [sequences, 1, 1, positions]`` is added to the scores. The result is shaped as ``q``.
    """
    out: Tensor = _flash(q, k, v, attn_mask=mask)[0]
    return out


def attend_span(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """A stretch of one sequence; causal among themselves when ``mask`` is None.

    ``q [tokens, kv_heads, group, head_dim]``, ``k``, ``v [kv_heads, positions, head_dim]``,
    ``mask [tokens, positions]`` is added to the scores. The result is shaped as ``q``.
    """
    group = q.shape[2]
    k, v = (x.unsqueeze(1).expand(-1, group, -1, -1) for x in (k, v))
    out: Tensor = _flash(q.permute(1, 2, 0, 3), k, v, is_causal=mask is None, attn_mask=mask)[0]
    return out.permute(2, 0, 1, 3)
