"""Decode steps as CUDA graphs: one launch instead of some three hundred.

A graph is captured for each rung of a ladder of batch sizes; a step takes the next rung up and
fills it with rows that read one block and store nothing.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from splitserve.engine.cuda.attention import Attention, GraphAttention, Stage
from splitserve.engine.cuda.decoder import CudaDecoder
from splitserve.engine.cuda.kernels import RECORD_ITEMS
from splitserve.engine.cuda.step import Ints, Step

_NOTHING: Final = (0, -1, 0, -1)
"""The record of a row that is there to fill a rung."""

WRAPPER_BYTES: Final = 8 << 20
"""What FlashInfer keeps on the device for each rung."""


def ladder(most: int) -> list[int]:
    """Batch sizes up to ``most``: fine where a row more costs something, coarse above."""
    rungs = [1, 2, 4, *range(8, 129, 8), *range(144, 257, 16), *range(288, most + 32, 32)]
    return [*(rung for rung in rungs if rung < most), most]


class DecodeGraphs:
    """Captured graphs over one decoder and pool. ``chosen`` is the tokens of the launch before."""

    def __init__(
        self,
        decoder: CudaDecoder,
        common: Attention,
        layers: Sequence[Tensor],
        chosen: Tensor,
        vocab_size: int,
        most_rows: int,
        most_blocks: int,
    ) -> None:
        """``most_blocks`` bounds the entries of all block tables of one step together."""
        self._decoder = decoder
        self._common = common
        self._layers = layers
        self._chosen = chosen
        nothing = torch.tensor([_NOTHING], dtype=torch.int32, device=common.device)
        self._records = nothing.repeat(most_rows, 1)
        self._indices = torch.zeros(
            most_blocks + most_rows, dtype=torch.int32, device=common.device
        )
        self._scores = torch.empty(
            (most_rows, vocab_size), dtype=common.dtype, device=common.device
        )
        self._rungs = ladder(most_rows)
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, GraphAttention]] = {}

    @property
    def rungs(self) -> Sequence[int]:
        return self._rungs

    def capture(self, stage: Stage) -> None:
        """Captures every rung, the largest first: the others then fit into its memory."""
        memory = torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream(self._common.device)
        for rung in reversed(self._rungs):
            attention = GraphAttention(self._common, rung, self._indices)
            stage.clear()
            self._plan(attention, _filled(None, rung), stage)
            graph = torch.cuda.CUDAGraph()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._forward(rung, attention)
                stream.synchronize()
                graph.capture_begin(memory)
                self._forward(rung, attention)
                graph.capture_end()
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            self._graphs[rung] = (graph, attention)

    def fits(self, step: Step) -> bool:
        return step.decodes_only and step.tokens <= self._rungs[-1]

    def plan(self, step: Step, stage: Stage) -> int:
        """Copies the step's arrays into place. Returns the rung to ``run``."""
        rung = next(rung for rung in self._rungs if rung >= step.tokens)
        self._plan(self._graphs[rung][1], _filled(step, rung), stage)
        return rung

    def run(self, rung: int, rows: int) -> Tensor:
        """Scores ``[rows, vocab_size]``, valid until the next run."""
        self._graphs[rung][0].replay()
        return self._scores[:rows]

    def _plan(
        self, attention: GraphAttention, arrays: tuple[Ints, Ints, Ints, Ints], stage: Stage
    ) -> None:
        records, indptr, indices, last = arrays
        self._records[: len(records)].copy_(stage.ints(records), non_blocking=True)
        self._indices[: len(indices)].copy_(stage.ints(indices), non_blocking=True)
        attention.plan(stage.ints(indptr), stage.ints(last))

    def _forward(self, rung: int, attention: GraphAttention) -> None:
        self._decoder.forward(
            self._records[:rung],
            self._chosen,
            self._layers,
            attention,
            None,
            scores=self._scores[:rung],
        )


def _filled(step: Step | None, rung: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Records and pages of a step, or of none, with as many rows more as the rung has."""
    rows = 0 if step is None else step.tokens
    records = np.empty((rung, RECORD_ITEMS), dtype=np.int32)
    records[rows:] = _NOTHING
    indptr = np.zeros(rung + 1, dtype=np.int32)
    last = np.ones(rung, dtype=np.int32)
    indices = np.zeros(0, dtype=np.int32)
    if step is not None:
        pages = step.single_pages
        records[:rows] = step.records
        indptr[: rows + 1] = pages.indptr
        last[:rows] = pages.last
        indices = pages.indices
    missing = rung - rows
    indptr[rows + 1 :] = indptr[rows] + np.arange(1, missing + 1, dtype=np.int32)
    return records, indptr, np.concatenate((indices, np.zeros(missing, dtype=np.int32))), last
