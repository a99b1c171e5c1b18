"""Copies between two pools that this process can address: what the host connectors share."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from splitserve.protocol.memory import KVLayout
from splitserve.transfer.base import TransferId
from splitserve.transfer.ends import Ends
from splitserve.transfer.plan import Span, check_layer, check_spans


@dataclass(frozen=True, slots=True)
class HostPool:
    """A pool mapped into this process at ``address``."""

    address: int
    layout: KVLayout


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
        self._copies = [(span.target, span.source, span.nbytes) for span in spans]
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
        memmove = ctypes.memmove
        for target, source, nbytes in self._copies:
            memmove(to + target, start + source, nbytes)
        self._ends.done(transfer, self._nbytes)
        return transfer
