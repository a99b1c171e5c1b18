"""Spans of every layer as NIXL wants them: one table of addresses for each pool."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from splitserve.transfer.plan import Span


@dataclass(frozen=True, slots=True)
class Place:
    """A pool: its address in its own process, bytes from layer to layer, ``cpu`` or ``cuda:N``."""

    address: int
    layer_bytes: int
    device: str

    @property
    def device_number(self) -> int:
        return int(self.device.partition(":")[2] or 0)

    @property
    def is_on_gpu(self) -> bool:
        return self.device.startswith("cuda")


@dataclass(frozen=True, slots=True)
class Pairs:
    """``spans`` of each of ``num_layers`` layers, from one pool to the other."""

    spans: Sequence[Span]
    num_layers: int
    source: Place
    target: Place

    @property
    def nbytes(self) -> int:
        """Of one layer."""
        return sum(span.nbytes for span in self.spans)

    def of(self, layer: int) -> range:
        """Which rows of the tables are of ``layer``."""
        count = len(self.spans)
        return range(layer * count, (layer + 1) * count)

    def tables(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """``[num_layers * spans, 3]`` of the source and of the target: address, bytes, device."""
        rows = np.array(
            [(span.source, span.target, span.nbytes) for span in self.spans], dtype=np.uint64
        )
        sizes = np.tile(rows[:, 2], self.num_layers)
        return self._table(self.source, rows[:, 0], sizes), self._table(
            self.target, rows[:, 1], sizes
        )

    def _table(
        self, place: Place, offsets: NDArray[np.uint64], sizes: NDArray[np.uint64]
    ) -> NDArray[np.uint64]:
        starts = place.address + np.arange(self.num_layers, dtype=np.uint64) * place.layer_bytes
        table = np.empty((len(sizes), 3), dtype=np.uint64)
        table[:, 0] = (starts[:, None] + offsets).ravel()
        table[:, 1] = sizes
        table[:, 2] = place.device_number
        return table
