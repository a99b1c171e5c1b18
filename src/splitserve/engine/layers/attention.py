"""Attention over paged keys and values: for single new tokens, and for stretches of a prompt.

Queries come as ``[tokens, kv_heads, group, head_dim]``: the ``group`` query heads that share a key
head lie together, so that keys and values are never repeated. A step's tokens are cut into parts,
each attended to by one call; all parts of all layers use the same indices and masks.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


class Part(Protocol):
    """Neighbouring tokens of a step."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, layer: Tensor) -> Tensor:
        """What the part's tokens gather, shaped as their ``q``.

        ``q``, ``k``, ``v`` are the whole step's, ``k`` and ``v`` being ``[tokens, kv_heads,
        head_dim]``; ``layer`` is one layer of the pool and holds them already.
        """
        ...


@dataclass(frozen=True, slots=True)
class Singles:
    """Tokens ``first .. first + count - 1``, each of another sequence.

    ``index`` is ``gather_index`` of their block tables; ``mask [count, 1, 1, positions]`` is added
    to the scores.
    """

    first: int
    count: int
    index: Tensor
    mask: Tensor | None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, layer: Tensor) -> Tensor:
        k, v = gather(layer, self.index, self.count)
        q = q.narrow(0, self.first, self.count)
        out: Tensor = _flash(q, k, v, attn_mask=self.mask)[0]
        return out


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens ``first .. first + count - 1``, all of one sequence.

    Without ``index`` they are its first ones and see each other causally. Else ``index`` is
    ``gather_index`` of its block table and ``mask [count, positions]`` is added to the scores.
    """

    first: int
    count: int
    index: Tensor | None
    mask: Tensor | None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, layer: Tensor) -> Tensor:
        group = q.shape[2]
        q = q.narrow(0, self.first, self.count).permute(1, 2, 0, 3)
        if self.index is None:
            k, v = (x.narrow(0, self.first, self.count).transpose(0, 1)[:, None] for x in (k, v))
        else:
            k, v = (x.transpose(0, 1) for x in gather(layer, self.index, 1))
        k, v = k.expand(-1, group, -1, -1), v.expand(-1, group, -1, -1)
        out: Tensor = _flash(q, k, v, is_causal=self.mask is None, attn_mask=self.mask)[0]
        return out.permute(2, 0, 1, 3)


def gather(layer: Tensor, index: Tensor, sequences: int) -> tuple[Tensor, ...]:
    """Keys and values of whole blocks side by side: ``[sequences, kv_heads, positions, head_dim]``.

    ``layer`` is one layer of the pool, ``index`` what ``gather_index`` made.
    """
    _, _, kv_heads, slots, head_dim = layer.shape
    rows = layer.view(-1, slots * head_dim).index_select(0, index)
    return rows.view(2, sequences, kv_heads, -1, head_dim).unbind()


def gather_index(tables: Tensor, kv_heads: int) -> Tensor:
    """Where the blocks of ``tables [sequences, blocks]`` lie, for ``gather``; the same all layers.

    Numbers rows of a layer seen as ``[block * K/V * kv_head, slot * head_dim]``.
    """
    kv = torch.arange(2).view(2, 1, 1, 1)
    head = torch.arange(kv_heads).view(1, 1, kv_heads, 1)
    return ((tables[None, :, None, :] * 2 + kv) * kv_heads + head).flatten()
