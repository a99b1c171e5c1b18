"""Attention over paged keys and values: for single new tokens, and for stretches of a prompt.

Queries come as ``[tokens, kv_heads, group, head_dim]``: the ``group`` query heads that share a key
head lie together, so that keys and values are never repeated. A step's tokens are cut into parts
that are attended to one by one; their indices and masks serve all layers.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from splitserve.engine.kv.pool import KVLayer

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

_STEP: Final = 128
"""Tokens of a prompt that attend to one another under one mask."""


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

    ``index`` is ``gather_index`` of the sequence's block table, ``mask`` a ``causal_mask``.
    """

    first: int
    count: int
    start: int
    index: Tensor
    mask: Tensor

    def attend(self, q: Tensor, layer: KVLayer) -> Tensor:
        q = q.narrow(0, self.first, self.count)
        k, v = (x.narrow(2, 0, self.start + self.count) for x in _gather(layer, self.index, q[:1]))
        own, own_weight = _causal(q, k[:, :, self.start :], v[:, :, self.start :], self.mask)
        if self.start == 0:
            return own
        before, before_weight = _to_all(q, k[:, :, : self.start], v[:, :, : self.start], None)
        # Two softmaxes become one: each counts as much as the sum of its exponentials.
        share = torch.sigmoid(before_weight - own_weight).to(q.dtype)
        return torch.lerp(own, before, share[..., None])


def causal_mask(count: int, group: int, dtype: torch.dtype) -> Tensor:
    """For ``Span``s of up to ``count`` tokens: ``[_STEP * group, positions]``.

    A token of a step sees all of the steps before, whose columns come first, and of its own step
    what is not after it.
    """
    steps = -(-count // _STEP)
    own = torch.full((_STEP, _STEP), float("-inf"), dtype=dtype).triu_(1)
    return F.pad(own, ((steps - 1) * _STEP, 0)).repeat_interleave(group, 0)


def _causal(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens among themselves, step by step; returns what ``_to_all`` does.

    PyTorch's own causal attention works on the half that it then masks.
    """
    parts = []
    for first in range(0, len(q), _STEP):
        rows = q[first : first + _STEP]
        end = first + len(rows)
        left = mask.shape[1] - _STEP - first
        seen = mask[: len(rows) * q.shape[2], left : left + end]
        parts.append(_to_all(rows, k[:, :, :end], v[:, :, :end], seen))
    if len(parts) == 1:
        return parts[0]
    return torch.cat([out for out, _ in parts]), torch.cat([weight for _, weight in parts])


def _to_all(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """What tokens gather from ``k``, ``v [1, kv_heads, n, head_dim]``, shaped as ``q``, and the log
    of the sum of their exponentials ``[tokens, kv_heads, group]``.

    The heads of a group stand in one row of tokens, so that each key is packed once, not per head.
    ``mask [tokens * group, n]`` is added to the scores.
    """
    tokens, kv_heads, group, head_dim = q.shape
    rows = q.transpose(0, 1).reshape(1, kv_heads, tokens * group, head_dim)
    out, weight = _flash(rows, k, v, attn_mask=mask)
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
