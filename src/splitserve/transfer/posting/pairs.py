"""Spans of every layer as addresses in either pool."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """``spans`` of each of ``num_layers`` layers, from one pool to the other: one row each, layer
    after layer."""

    spans: Sequence[Span]
    num_layers: int
    source: Place
    target: Place

    @property
    def nbytes(self) -> int:
        """Of one layer."""
        return sum(span.nbytes for span in self.spans)

    def of(self, layer: int) -> range:
        """Which rows are of ``layer``."""
        count = len(self.spans)
        return range(layer * count, (layer + 1) * count)

    def at(self, row: int) -> tuple[int, int, int]:
        """Address at the source, address at the target, bytes."""
        layer, number = divmod(row, len(self.spans))
        span = self.spans[number]
        return (
            self.source.address + layer * self.source.layer_bytes + span.source,
            self.target.address + layer * self.target.layer_bytes + span.target,
            span.nbytes,
        )
