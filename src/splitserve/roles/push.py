"""Turns "layer stored" into writes: the KVSink of a prefill worker.

Driven by the engine's thread. Knows, per pushing request, where its blocks go.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from splitserve.engine.api import PushSpan
from splitserve.ids import RequestId
from splitserve.protocol.handoff import GrantTarget
from splitserve.protocol.memory import KVLayout
from splitserve.transfer.base import LayerWriter, PeerId, TransferEvent, TransferId
from splitserve.transfer.plan import Span, spans
from splitserve.transfer.sharded import Leg, ShardedConnector


@dataclass(slots=True)
class Push:
    """One request's push: a layer is one write on each of ``legs``. ``error`` is set by the first
    failed write."""

    legs: tuple[Leg, ...]
    target: GrantTarget
    open_transfers: set[TransferId] = field(default_factory=set)
    kv_bytes: int = 0
    error: str = ""


class Pusher:
    """Implements KVSink over the connectors of all pools."""

    def __init__(self, connector: ShardedConnector) -> None:
        self._connector = connector
        self._pushes: dict[RequestId, Push] = {}
        self._by_transfer: dict[TransferId, RequestId] = {}
        self._step: list[tuple[RequestId, Push, LayerWriter]] = []

    def open(self, request_id: RequestId, peer: PeerId, target: GrantTarget) -> None:
        """``peer`` must be connected."""
        self._pushes[request_id] = Push(self._connector.legs(peer), target)

    def get(self, request_id: RequestId) -> Push | None:
        return self._pushes.get(request_id)

    def drop(self, request_id: RequestId) -> None:
        """Forget a push; its open transfers still end, unreported."""
        push = self._pushes.pop(request_id, None)
        if push is not None:
            for transfer in push.open_transfers:
                self._by_transfer.pop(transfer, None)

    def begin(self, spans: Sequence[PushSpan]) -> None:
        self._step = []
        for span in spans:
            push = self._pushes.get(span.request_id)
            if push is None:
                continue
            for leg in push.legs:
                wanted = wanted_spans(span, push.target, leg.ours, leg.theirs)
                if wanted:
                    self._step.append((span.request_id, push, leg.writer(wanted)))

    def on_layer(self, layer: int) -> None:
        for request_id, push, writer in self._step:
            transfer = writer.write(layer)
            push.open_transfers.add(transfer)
            self._by_transfer[transfer] = request_id

    def take(self, events: Sequence[TransferEvent]) -> None:
        """Takes in the ends of writes; those of other transfers are none of its business."""
        for event in events:
            request_id = self._by_transfer.pop(event.transfer, None)
            push = None if request_id is None else self._pushes.get(request_id)
            if push is None:
                continue
            push.open_transfers.discard(event.transfer)
            push.kv_bytes += event.nbytes
            if event.state == "failed":
                push.error = push.error or event.error


def wanted_spans(
    span: PushSpan, target: GrantTarget, ours: KVLayout, theirs: KVLayout
) -> list[Span]:
    """What of the span's blocks the target lacks, and where it goes.

    Blocks before ``skip_blocks`` lie in the target's prefix cache and must not be written. Blocks
    of the span are counted in our block size, those of the target in its own.
    """
    first, last = span.first, span.first + len(span.blocks)
    skip, end = target.skip_blocks, target.skip_blocks + len(target.blocks)
    start = max(first * ours.block_size, skip * theirs.block_size)
    stop = min(last * ours.block_size, end * theirs.block_size)
    return spans(ours, theirs, range(start, stop), span.blocks, target.blocks, first, skip)
