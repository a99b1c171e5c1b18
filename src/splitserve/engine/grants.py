"""Sequences whose KV is still to arrive from another process.

The pool keeps their blocks, and tells which word about a grant still counts.
"""

from dataclasses import dataclass

from splitserve.engine.api import Reservation
from splitserve.engine.kv.blocks import BlockPool
from splitserve.engine.scheduler import Scheduler
from splitserve.engine.sequence import Seq
from splitserve.errors import CallerError
from splitserve.ids import HandoffId, WorkerId
from splitserve.protocol.generate import GenerateRequest


@dataclass(frozen=True, slots=True)
class _Granted:
    seq: Seq
    reservation: Reservation


class Grants:
    """Those of one engine. See ``engine.api.Engine`` for what each method promises."""

    def __init__(self, scheduler: Scheduler, pool: BlockPool, block_size: int) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._block_size = block_size
        self._open: dict[HandoffId, _Granted] = {}

    def known(self, handoff: HandoffId, request: GenerateRequest) -> Reservation | None:
        """What this very call was answered before, if the grant is open. Raises CallerError when
        ``handoff`` is open for another request."""
        granted = self._open.get(handoff)
        if granted is None:
            return None
        if granted.seq.request != request:
            raise CallerError(
                f"handoff {handoff} is open for another request", param="handoff", status=409
            )
        return granted.reservation

    def grant(self, handoff: HandoffId, seq: Seq, writer: WorkerId) -> Reservation | None:
        """None when there is no room."""
        scheduler = self._scheduler
        shared = scheduler.cached_prefix(seq, seq.prompt_len // self._block_size)
        # One position more than the prompt: the first step here computes the first token.
        positions = min(seq.prompt_len + 1, seq.max_len - 1)
        count = scheduler.blocks_for(positions) - len(shared)
        if not scheduler.has_place_for_grant(count, shared):
            return None
        grant = self._pool.grant(handoff, writer, count, shared)
        if grant is None:
            return None
        epoch, blocks = grant
        seq.num_registered = len(shared)
        seq.was_admitted = True
        reservation = Reservation(
            epoch=epoch,
            skip_blocks=len(shared),
            blocks=tuple(blocks[: scheduler.blocks_for(seq.prompt_len) - len(shared)]),
            cached_tokens=scheduler.count_prefix(seq, len(shared)),
            cached_blocks=tuple(shared),
        )
        self._open[handoff] = _Granted(seq, reservation)
        return reservation

    def activate(self, handoff: HandoffId, epoch: int) -> Seq | None:
        """The sequence, with its blocks, whose KV is here now. None when the grant is gone or of
        another epoch."""
        blocks = self._pool.activate(handoff, epoch)
        if blocks is None:
            return None
        seq = self._open.pop(handoff).seq
        seq.blocks = blocks
        seq.num_computed = seq.prompt_len
        return seq

    def cancel(self, handoff: HandoffId) -> int | None:
        epoch = self._pool.cancel(handoff)
        if epoch is not None:
            del self._open[handoff]
        return epoch

    def writer_gone(self, writer: WorkerId) -> list[HandoffId]:
        ended = self._pool.writer_gone(writer)
        for handoff in ended:
            del self._open[handoff]
        return ended
