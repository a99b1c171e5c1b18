"""From a step's rows to the arrays of its launch. No tensors, so that it can be tested anywhere.

Rows of one token come first (they decode), the others follow (they are stretches of prompts).
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from splitserve.engine.api import Row
from splitserve.ids import RequestId

Ints = NDArray[np.int32]

_GROWTH: Final = 64
"""Entries by which a table grows at least: so it is copied seldom."""


@dataclass(frozen=True, slots=True)
class Pages:
    """The block tables of some rows, one after the other, as FlashInfer takes them.

    ``indptr [rows + 1]`` cuts ``indices``; ``last [rows]`` is how many slots of a row's last block
    are filled once the step has run.
    """

    indptr: Ints
    indices: Ints
    last: Ints


@dataclass(frozen=True, slots=True)
class Step:
    """``records [tokens, 4]``: token id, choice that it follows or -1, position, KV slot.

    The first ``singles`` tokens are rows of their own; ``spans [span rows + 1]`` cuts the others.
    ``sampled`` are the tokens whose scores are asked for, in the order of the rows given.
    """

    records: Ints
    singles: int
    single_pages: Pages
    spans: Ints
    span_pages: Pages
    sampled: Ints

    @property
    def tokens(self) -> int:
        return len(self.records)

    @property
    def decodes_only(self) -> bool:
        """Every row is one token, and each of them is sampled, in order."""
        return self.singles == len(self.records) == len(self.sampled)


class BlockTables:
    """Sequences' block tables as arrays, kept from step to step: a table only grows."""

    def __init__(self, capacity: int) -> None:
        """Remembers the ``capacity`` tables that were used last."""
        self._capacity = capacity
        self._tables: OrderedDict[RequestId, _Table] = OrderedDict()

    def get(self, row: Row, count: int) -> Ints:
        """The row's first ``count`` blocks; valid until the next call for the same request."""
        table = self._tables.get(row.request_id)
        if table is None or table.source is not row.blocks:
            table = _Table(row.blocks)
            self._tables[row.request_id] = table
            while len(self._tables) > self._capacity:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(row.request_id)
        return table.first(count)


class _Table:
    __slots__ = ("_entries", "_filled", "source")

    def __init__(self, source: Sequence[int]) -> None:
        self.source = source
        self._entries = np.array(source, dtype=np.int32)
        self._filled = len(self._entries)

    def first(self, count: int) -> Ints:
        if count > self._filled:
            fresh = self.source[self._filled :]
            needed = self._filled + len(fresh)
            if needed > len(self._entries):
                grown = np.empty(needed + _GROWTH, dtype=np.int32)
                grown[: self._filled] = self._entries[: self._filled]
                self._entries = grown
            self._entries[self._filled : needed] = fresh
            self._filled = needed
        return self._entries[:count]


def plan_step(rows: Sequence[Row], block_size: int, tables: BlockTables) -> Step:
    """``rows`` in the engine's order."""
    singles = [row for row in rows if len(row.tokens) == 1]
    spans = [row for row in rows if len(row.tokens) > 1] if len(singles) < len(rows) else []
    single_pages = _pages(singles, block_size, tables)
    span_pages = _pages(spans, block_size, tables)
    records = np.empty((len(singles) + sum(len(row.tokens) for row in spans), 4), dtype=np.int32)
    _fill_singles(records, singles, single_pages, block_size)
    bounds = _fill_spans(records, len(singles), spans, span_pages, block_size)
    return Step(
        records=records,
        singles=len(singles),
        single_pages=single_pages,
        spans=bounds,
        span_pages=span_pages,
        sampled=_sampled(rows, len(singles), bounds),
    )


def _pages(rows: Sequence[Row], block_size: int, tables: BlockTables) -> Pages:
    ends = np.array([row.start + len(row.tokens) for row in rows], dtype=np.int32)
    counts = (ends + (block_size - 1)) // block_size
    indptr = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(counts, out=indptr[1:])
    found = [tables.get(row, count) for row, count in zip(rows, counts.tolist(), strict=True)]
    indices = np.concatenate(found) if found else np.empty(0, dtype=np.int32)
    return Pages(indptr, indices, ends - (counts - 1) * block_size)


def _fill_singles(records: Ints, rows: Sequence[Row], pages: Pages, block_size: int) -> None:
    if not rows:
        return
    own = records[: len(rows)]
    own[:, 0] = [row.tokens[0] for row in rows]
    own[:, 1] = [-1 if row.follows is None else row.follows for row in rows]
    own[:, 2] = [row.start for row in rows]
    # A single's token is the last of its sequence: it lies in the last block, at its last slot.
    own[:, 3] = pages.indices[pages.indptr[1:] - 1] * block_size + pages.last - 1


def _fill_spans(
    records: Ints, first: int, rows: Sequence[Row], pages: Pages, block_size: int
) -> Ints:
    """Returns where the rows' tokens begin and end, counted from the first span token on."""
    bounds = np.zeros(len(rows) + 1, dtype=np.int32)
    at = first
    for number, row in enumerate(rows):
        count = len(row.tokens)
        own = records[at : at + count]
        own[:, 0] = row.tokens
        own[:, 1] = -1
        positions = np.arange(row.start, row.start + count, dtype=np.int32)
        own[:, 2] = positions
        blocks = pages.indices[pages.indptr[number] : pages.indptr[number + 1]]
        own[:, 3] = blocks[positions // block_size] * block_size + positions % block_size
        at += count
        bounds[number + 1] = at - first
    return bounds


def _sampled(rows: Sequence[Row], singles: int, bounds: Ints) -> Ints:
    found = []
    single = span = 0
    for row in rows:
        if len(row.tokens) == 1:
            at = single
            single += 1
        else:
            at = singles + int(bounds[span + 1]) - 1
            span += 1
        if row.sample is not None:
            found.append(at)
    return np.array(found, dtype=np.int32)
