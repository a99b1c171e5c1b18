"""Attention over paged keys and values: for single new tokens, and for stretches of a prompt.

Queries come as ``[tokens, kv_heads, group, head_dim]``: the ``group`` query heads that share a key
head lie together, so that keys and values are never repeated. A step's tokens are cut into parts
that are attended to one by one; their indices and masks serve all layers.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from splitserve.engine.kv.pool import KVLayer

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


class Part(Protocol):
    """Neighbouring tokens of a step."""

    def attend(self, q: Tensor, layer: KVLayer) -> Tensor:
        """What the part's tokens gather, shaped as their ``q``.

        ``q`` is the whole step's; ``layer`` holds the step's keys and values already.
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
    mask: Tensor

    def attend(self, q: Tensor, layer: KVLayer) -> Tensor:
        q = q.narrow(0, self.first, self.count)
        k, v = _gather(layer, self.index, q)
        out: Tensor = _flash(q, k, v, attn_mask=self.mask)[0]
        return out


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens ``first .. first + count - 1``, all of one sequence, after ``start`` others of it.

    ``index`` is ``gather_index`` of the sequence's block table.
    """

    first: int
    count: int
    start: int
    index: Tensor

    def attend(self, q: Tensor, layer: KVLayer) -> Tensor:
        q = q.narrow(0, self.first, self.count)
        k, v = (x.narrow(2, 0, self.start + self.count) for x in _gather(layer, self.index, q[:1]))
        own, own_weight = _causal(q, k[:, :, self.start :], v[:, :, self.start :])
        if self.start == 0:
            return own
        before, before_weight = _to_all(q, k[:, :, : self.start], v[:, :, : self.start])
        # Two softmaxes become one: each counts as much as the sum of its exponentials.
        share = torch.sigmoid(before_weight - own_weight).to(q.dtype)
        return torch.lerp(own, before, share[..., None])


def _causal(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens among themselves: what they gather, shaped as ``q``, and the log of the sum of their
    exponentials ``[tokens, kv_heads, group]``. ``k``, ``v`` are ``[1, kv_heads, n, head_dim]``.
    """
    group = q.shape[2]
    k, v = (x.transpose(0, 1).expand(-1, group, -1, -1) for x in (k, v))
    out, weight = _flash(q.permute(1, 2, 0, 3), k, v, is_causal=True)
    return out.permute(2, 0, 1, 3), weight.permute(2, 0, 1)


def _to_all(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """As ``_causal``, but each token sees all of ``k`` and ``v``.

    The heads of a group stand in one row of tokens, so that each key is packed once, not per head.
    """
    tokens, kv_heads, group, head_dim = q.shape
    rows = q.transpose(0, 1).reshape(1, kv_heads, tokens * group, head_dim)
    out, weight = _flash(rows, k, v)
    shape = (kv_heads, tokens, group)
    return out.view(*shape, head_dim).transpose(0, 1), weight.view(shape).transpose(0, 1)


def _gather(layer: KVLayer, index: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    """Keys and values of blocks side by side: ``[sequences, kv_heads, positions, head_dim]``.

    ``q`` has one row for each sequence.
    """
    sequences, kv_heads, _, head_dim = q.shape
    runs = layer.runs.index_select(0, index)
    return runs.view(2, sequences, kv_heads, -1, head_dim).unbind()


def gather_index(tables: Tensor, kv_heads: int) -> Tensor:
    """Where the blocks of ``tables [sequences, blocks]`` lie among a layer's ``runs``.

    In the order K/V, sequence, kv_head, block; flat.
    """
    kv = torch.arange(2).view(2, 1, 1, 1)
    head = torch.arange(kv_heads).view(1, 1, kv_heads, 1)
    return ((tables[None, :, None, :] * 2 + kv) * kv_heads + head).flatten()
