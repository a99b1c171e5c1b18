"""Copies between two pools that this process can address: what the host connectors share."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from splitserve.protocol.memory import KVLayout
from splitserve.transfer.base import TransferId
from splitserve.transfer.ends import Ends
from splitserve.transfer.plan import BlockRun, check_layer, check_runs


@dataclass(frozen=True, slots=True)
class HostPool:
    """A pool mapped into this process at ``address``."""

    address: int
    layout: KVLayout


class HostWriter:
    """A LayerWriter whose writes are complete when ``write`` returns.

    ``connected`` says whether ``target`` may still be touched.
    """

    def __init__(
        self,
        ends: Ends,
        runs: Sequence[BlockRun],
        source: HostPool,
        target: HostPool,
        connected: Callable[[], bool],
    ) -> None:
        check_runs(runs, source.layout.num_blocks, target.layout.num_blocks)
        self._ends = ends
        self._source = source
        self._target = target
        self._connected = connected
        block = source.layout.block_bytes
        self._copies = [(run.target * block, run.source * block, run.count * block) for run in runs]
        self._nbytes = sum(nbytes for _, _, nbytes in self._copies)

    def write(self, layer: int) -> TransferId:
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
