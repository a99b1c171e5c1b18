"""From a step's rows to the tensors of its forward pass."""

from collections.abc import Iterator, Sequence
from typing import Final

import torch

from splitserve.engine.api import Row
from splitserve.engine.layers.attention import Part, Singles, Span, gather_index
from splitserve.engine.models.batch import Batch
from splitserve.protocol.memory import KVLayout

_GATHER_BYTES: Final = 1 << 20
"""Most keys and values that one call of attention copies, unless it is for one sequence: what it
copied should still be in a core's second cache when it is read."""

_SPLIT_TOKENS: Final = 256
"""One more call of attention costs about as much as attending to this many more positions."""


def plan_batch(rows: Sequence[Row], layout: KVLayout, dtype: torch.dtype) -> Batch:
    """Rows of one token come first, short sequences before long ones; the others follow."""
    singles = sorted((row for row in rows if len(row.tokens) == 1), key=lambda row: row.start)
    spans = [row for row in rows if len(row.tokens) > 1]
    tokens: list[int] = []
    positions: list[int] = []
    bases: list[int] = []
    last = {}
    for row in (*singles, *spans):
        tokens.extend(row.tokens)
        own = range(row.start, _end(row))
        positions.extend(own)
        bases.extend(_slots(row, own, layout))
        last[row.request_id] = len(tokens) - 1
    sampled = [last[row.request_id] for row in rows if row.sample is not None]
    all_in_order = sampled == list(range(len(tokens)))
    parts: list[Part] = [
        _singles(alike, first, layout, dtype) for first, alike in _alike(singles, layout)
    ]
    parts += [_span(row, last[row.request_id], layout) for row in spans]
    heads = torch.arange(2 * layout.num_kv_heads) * layout.block_size
    return Batch(
        tokens=torch.tensor(tokens),
        positions=torch.tensor(positions),
        slots=(torch.tensor(bases)[:, None] + heads).flatten(),
        parts=tuple(parts),
        sampled=None if all_in_order else torch.tensor(sampled, dtype=torch.int64),
        samples=len(sampled),
    )


def _end(row: Row) -> int:
    return row.start + len(row.tokens)


def _slots(row: Row, positions: range, layout: KVLayout) -> Iterator[int]:
    """Where the first key head of each position goes."""
    size = layout.block_size
    stride = 2 * layout.num_kv_heads * size
    return (row.blocks[at // size] * stride + at % size for at in positions)


def _alike(singles: Sequence[Row], layout: KVLayout) -> Iterator[tuple[int, Sequence[Row]]]:
    """Cuts rows, sorted by length, into calls of attention that pad and copy little."""
    token_bytes = layout.block_bytes // layout.block_size
    first, padding = 0, 0
    for at in range(1, len(singles)):
        members = at - first
        padding += members * (singles[at].start - singles[at - 1].start)
        nbytes = (members + 1) * _end(singles[at]) * token_bytes
        if padding > _SPLIT_TOKENS or nbytes > _GATHER_BYTES:
            yield first, singles[first:at]
            first, padding = at, 0
    if singles:
        yield first, singles[first:]


def _singles(rows: Sequence[Row], first: int, layout: KVLayout, dtype: torch.dtype) -> Singles:
    """``rows`` are sorted by length. Short block tables are filled up with their last block."""
    blocks = -(-_end(rows[-1]) // layout.block_size)
    tables = [
        [*row.blocks[:blocks], *[row.blocks[-1]] * (blocks - len(row.blocks))] for row in rows
    ]
    ends = torch.tensor([_end(row) for row in rows])
    beyond = torch.arange(blocks * layout.block_size) >= ends[:, None]
    mask = torch.zeros(beyond.shape, dtype=dtype).masked_fill_(beyond, float("-inf"))
    index = gather_index(torch.tensor(tables), layout.num_kv_heads)
    return Singles(first, len(rows), index, mask[:, None, None])


def _span(row: Row, last: int, layout: KVLayout) -> Span:
    blocks = -(-_end(row) // layout.block_size)
    index = gather_index(torch.tensor(row.blocks[:blocks])[None], layout.num_kv_heads)
    return Span(last - len(row.tokens) + 1, len(row.tokens), row.start, index)
