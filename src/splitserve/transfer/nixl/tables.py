"""Spans of every layer as NIXL wants them: one table of addresses for each pool."""

import numpy as np
from numpy.typing import NDArray

from splitserve.transfer.posting.pairs import Pairs, Place


def tables(pairs: Pairs) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """``[num_layers * spans, 3]`` of the source and of the target: address, bytes, device."""
    rows = np.array(
        [(span.source, span.target, span.nbytes) for span in pairs.spans], dtype=np.uint64
    )
    sizes = np.tile(rows[:, 2], pairs.num_layers)
    return (
        _table(pairs.source, pairs.num_layers, rows[:, 0], sizes),
        _table(pairs.target, pairs.num_layers, rows[:, 1], sizes),
    )


def _table(
    place: Place, num_layers: int, offsets: NDArray[np.uint64], sizes: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    starts = place.address + np.arange(num_layers, dtype=np.uint64) * place.layer_bytes
    table = np.empty((len(sizes), 3), dtype=np.uint64)
    table[:, 0] = (starts[:, None] + offsets).ravel()
    table[:, 1] = sizes
    table[:, 2] = place.device_number
    return table
