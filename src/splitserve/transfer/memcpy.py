"""Copies between two pools that this process can address: what the host connectors share."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.protocol.memory import KVLayout
from splitserve.transfer.base import TransferId
from splitserve.transfer.ends import Ends
from splitserve.transfer.plan import Span, check_layer, check_spans

_LARGE: Final = 1 << 18
"""Bytes from which on other threads may run during a copy. To let them costs as much as a copy of
ten thousand bytes."""


@dataclass(frozen=True, slots=True)
class HostPool:
    """A pool mapped into this process at ``address``."""

    address: int
    layout: KVLayout

    def layer(self, layer: int) -> memoryview:
        """Its bytes. Of no use once the pool is mapped no longer."""
        nbytes = self.layout.layer_bytes
        start = self.address + layer * nbytes
        return memoryview((ctypes.c_char * nbytes).from_address(start)).cast("B")


class HostCopier:
    """The LayerWriter and LayerReader of pools in host memory: a transfer is complete when
    ``write`` or ``read`` returns.

    ``connected`` says whether the peer's pool may still be touched.
    """

    def __init__(
        self,
        ends: Ends,
        spans: Sequence[Span],
        source: HostPool,
        target: HostPool,
        connected: Callable[[], bool],
    ) -> None:
        check_spans(spans, source.layout.layer_bytes, target.layout.layer_bytes)
        self._ends = ends
        self._source = source
        self._target = target
        self._connected = connected
        self._large = [span for span in spans if span.nbytes >= _LARGE]
        self._small = [
            (
                slice(span.target, span.target + span.nbytes),
                slice(span.source, span.source + span.nbytes),
            )
            for span in spans
            if span.nbytes < _LARGE
        ]
        self._nbytes = sum(span.nbytes for span in spans)

    def write(self, layer: int) -> TransferId:
        return self._copy(layer)

    def read(self, layer: int) -> TransferId:
        return self._copy(layer)

    def _copy(self, layer: int) -> TransferId:
        check_layer(layer, self._source.layout)
        if not self._connected():
            return self._ends.not_sent(layer)
        transfer = self._ends.begin()
        to = self._target.address + layer * self._target.layout.layer_bytes
        start = self._source.address + layer * self._source.layout.layer_bytes
        for span in self._large:
            ctypes.memmove(to + span.target, start + span.source, span.nbytes)
        target, source = self._target.layer(layer), self._source.layer(layer)
        for there, here in self._small:
            target[there] = source[here]
        self._ends.done(transfer, self._nbytes)
        return transfer
