"""Prefill: bring what decode or the tier has of the prompt, compute the rest, push, hand over.

The role is the engine's KVSink: it learns from the forward pass what there is to push.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.clock import Clock
from splitserve.engine.api import Engine, PushSpan, SeqOutput
from splitserve.errors import CallerError
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.control import Failed
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.handoff import (
    Fence,
    FenceRequest,
    KVReady,
    Prefill,
    PrefillDone,
    Refuse,
)
from splitserve.roles.links import Link, Links
from splitserve.roles.owners import Owners
from splitserve.roles.port import ConnId, Port
from splitserve.roles.pull import Pull, Puller
from splitserve.roles.push import Pusher
from splitserve.roles.refusal import refusal_code
from splitserve.roles.tiering import Tiering
from splitserve.transfer.sharded import ShardedConnector

log = logging.getLogger(__name__)

MAX_TOMBSTONES: Final = 4096
"""Voided handoffs remembered so that a Prefill that comes after its FenceRequest never starts."""


STALLED_S: Final = 5.0
"""Transfers of one prompt of which none ends for so long are given up."""


@dataclass(slots=True)
class _Handoff:
    """``pull``: while the prompt waits for what is being read. ``first_token``: None until sampled.
    ``fence_epoch``: set once decode voided the grant. ``left`` writes are under way, and were since
    ``left_since``. ``waited_s`` before it was ``accepted`` the request lay here unread."""

    handoff: HandoffId
    request_id: RequestId
    worker: WorkerId
    conn: ConnId
    epoch: int
    accepted: float
    waited_s: float
    pull: Pull | None = None
    started: float | None = None
    sampled: float | None = None
    first_token: int | None = None
    handed_off: bool = False
    fence_epoch: int | None = None
    given_up: bool = False
    left: int = 0
    left_since: float = 0.0


class PrefillRole:
    def __init__(
        self,
        engine: Engine,
        port: Port,
        owners: Owners,
        links: Links,
        connector: ShardedConnector,
        clock: Clock,
        tiering: Tiering | None = None,
    ) -> None:
        self._engine = engine
        self._port = port
        self._owners = owners
        self._links = links
        self._connector = connector
        self._pusher = Pusher(connector)
        self._puller = Puller(engine, connector, clock)
        self._clock = clock
        self._tiering = tiering
        self._by_request: dict[RequestId, _Handoff] = {}
        self._by_handoff: dict[HandoffId, _Handoff] = {}
        self._tombstones: OrderedDict[HandoffId, None] = OrderedDict()

    @property
    def pending(self) -> bool:
        """Whether writes of finished prompts are still under way."""
        return any(h.first_token is not None or h.given_up for h in self._by_request.values())

    @property
    def pulling(self) -> bool:
        """Whether prompts wait for what is being read."""
        return any(h.pull is not None for h in self._by_request.values())

    @property
    def pulled_tokens(self) -> int:
        """Of prompts: brought from decode workers since the start, and not computed."""
        return self._puller.tokens

    @property
    def pulled_bytes(self) -> int:
        return self._puller.nbytes

    @property
    def skipped_pulls(self) -> int:
        """Prompts of which a part was computed since that was cheaper than to read it."""
        return self._puller.cost.skipped

    def held(self, conn: ConnId) -> list[RequestId]:
        """Requests of a connection whose handoff is not settled."""
        return [r for r, h in self._by_request.items() if h.conn == conn and not h.given_up]

    def active(self) -> dict[WorkerId, tuple[HandoffId, ...]]:
        """Handoffs being worked on, by decode worker: what Renew tells."""
        found: dict[WorkerId, list[HandoffId]] = {}
        for handoff in self._by_request.values():
            if not handoff.given_up:
                found.setdefault(handoff.worker, []).append(handoff.handoff)
        return {worker: tuple(handoffs) for worker, handoffs in found.items()}

    def prefill(self, conn: ConnId, message: Prefill, waited_s: float) -> None:
        refusal = self._start(conn, message, waited_s)
        if refusal is not None:
            self._port.send(conn, refusal)
        elif self.pulling:
            # Where reads end as soon as they are started, the prompt need not wait for a turn.
            self.settle()

    def _start(self, conn: ConnId, message: Prefill, waited_s: float) -> Refuse | None:
        target, request = message.target, message.request
        handoff, request_id = target.handoff, request.request_id
        if handoff in self._tombstones:
            return Refuse(handoff, "cancelled", "the decode worker voided the grant", True)
        if request_id in self._owners or request_id in self._by_request:
            return Refuse(handoff, "duplicate", "the request id is in use here", False)
        link = self._links.get(target.worker)
        if link is None or link.name != target.link:
            return Refuse(handoff, "stale_link", f"no link to {target.worker} by that name", True)
        record = _Handoff(
            handoff, request_id, target.worker, conn, target.epoch, self._clock(), waited_s
        )
        if not self._by_request:
            self._puller.cost.compute.restart(self._engine.stats().computed_tokens)
        try:
            record.pull = self._puller.open(request, link.peer, target)
            if record.pull is None:
                self._enter(record, request)
        except CallerError as error:
            return Refuse(handoff, refusal_code(error), error.message, False, error.param)
        self._pusher.open(request_id, link.peer, target)
        self._by_request[request_id] = record
        self._by_handoff[handoff] = record
        self._owners.add(request_id, conn, "prefill", waited_s)
        return None

    def begin(self, spans: Sequence[PushSpan]) -> None:
        """KVSink: the step that is about to run works on these pushing sequences."""
        now = self._clock()
        for span in spans:
            record = self._by_request.get(span.request_id)
            if record is not None and record.started is None:
                record.started = now
        self._pusher.begin(spans)

    def on_layer(self, layer: int) -> None:
        """KVSink: push what the layer just stored."""
        self._pusher.on_layer(layer)

    def on_output(self, output: SeqOutput) -> None:
        """The first token is there; what remains is the end of the push."""
        record = self._by_request.get(output.request_id)
        if record is None:
            return
        record.sampled = self._clock()
        record.first_token = output.token_id
        record.handed_off = output.handed_off
        self._owners.drop(output.request_id)

    def stepped(self, began: float, *, told: bool) -> None:
        """A step that ``began`` then is over, and what it took is learnt. ``told``: it brought
        tokens."""
        engine = self._engine
        if not self._by_request:
            return  # this one only decodes, and must not be kept up
        self._puller.cost.compute.stepped(
            engine.stats().computed_tokens,
            began,
            self._clock(),
            told=told,
            goes_on=engine.has_work(),
        )

    def settle(self) -> None:
        """Takes in the ends of transfers: prompts whose start is here are queued, every handoff
        whose writes have ended is finished. Called after each step and poll."""
        events = self._connector.poll()
        self._pusher.take(events)
        self._puller.take(events)
        self._puller.advance()
        for record in list(self._by_request.values()):
            if record.pull is not None:
                self._await(record, record.pull)
            if record.pull is not None or (record.first_token is None and not record.given_up):
                continue
            push = self._pusher.get(record.request_id)
            if push is None:
                continue
            if push.open_transfers:
                self._watch(record, len(push.open_transfers))
            else:
                self._end(record, push.kv_bytes, push.error)

    def _await(self, record: _Handoff, pull: Pull) -> None:
        """Once nothing is read for it any more the prompt is queued. Reads of which nothing moves
        are left behind, unless the handoff is over anyway: then it ends with them."""
        if pull.is_over:
            record.pull = None
            if record.given_up:
                return
            self._puller.finish(pull)
            if pull.error:
                log.warning("the start of %s is computed: %s", record.request_id, pull.error)
        elif not record.given_up and self._clock() - pull.moved >= STALLED_S:
            record.pull = None
            self._puller.leave_behind(pull)
            log.warning("the start of %s is computed: no read of it ended", record.request_id)
        else:
            return
        self._resume(record, lambda: self._enter(record, pull.request))

    def _enter(self, record: _Handoff, request: GenerateRequest) -> None:
        """The prompt is queued, once the tier has brought what it has of it. May raise CallerError
        where ``Engine.add`` would."""

        def add() -> None:
            self._engine.add(request, push=True)

        def late() -> None:
            self._resume(record, add)

        if self._tiering is None or not self._tiering.wait_for(request, late, push=True):
            add()

    def _resume(self, record: _Handoff, step: Callable[[], None]) -> None:
        """Takes the next ``step`` with a prompt that waited for what was brought. Whoever asked has
        to be told that it is refused, for he was told before that it is not."""
        try:
            step()
        except CallerError as error:
            code = refusal_code(error)
            failed = Failed(record.request_id, code, error.message, error.param)
            self._port.send(record.conn, failed)
            record.given_up = True
            self._owners.drop(record.request_id)
            return
        waited_s = record.waited_s + self._clock() - record.accepted
        self._owners.add(record.request_id, record.conn, "prefill", waited_s)

    def _watch(self, record: _Handoff, left: int) -> None:
        """Gives a push up of which nothing moves; its blocks wait for the last write all the same,
        here and at the decode worker."""
        now = self._clock()
        if left != record.left:
            record.left, record.left_since = left, now
        elif now - record.left_since >= STALLED_S and not record.given_up:
            reason = f"no write ended for {STALLED_S:g} s"
            self._port.send(record.conn, Failed(record.request_id, "transfer_failed", reason))
            record.given_up = True

    def _end(self, record: _Handoff, kv_bytes: int, error: str) -> None:
        link = self._links.get(record.worker)
        if record.fence_epoch is not None and link is not None:
            self._port.send(link.conn, Fence(record.handoff, record.fence_epoch))
        elif not record.given_up:
            self._report(record, link, kv_bytes, error)
        self._engine.release(record.request_id)
        self._pusher.drop(record.request_id)
        del self._by_request[record.request_id]
        del self._by_handoff[record.handoff]

    def _report(self, record: _Handoff, link: Link | None, kv_bytes: int, error: str) -> None:
        if error:
            self._port.send(record.conn, Failed(record.request_id, "transfer_failed", error))
            return
        if record.handed_off and link is not None and record.first_token is not None:
            self._port.send(link.conn, KVReady(record.handoff, record.epoch, record.first_token))
        now = self._clock()
        sampled = record.sampled or now
        started = record.started or record.accepted
        self._port.send(
            record.conn,
            PrefillDone(
                record.request_id,
                record.handoff,
                kv_bytes,
                started - record.accepted,
                sampled - started,
                now - sampled,
            ),
        )

    def fence_request(self, conn: ConnId, message: FenceRequest) -> None:
        """Stop writing into a voided grant; the answer leaves once nothing is under way."""
        self._bury(message.handoff)
        record = self._by_handoff.get(message.handoff)
        if record is None:
            self._port.send(conn, Fence(message.handoff, message.epoch))
            return
        record.fence_epoch = message.epoch
        self._give_up(record)
        self.settle()

    def abort(self, conn: ConnId, request_id: RequestId) -> None:
        record = self._by_request.get(request_id)
        if record is not None and record.conn == conn:
            self._give_up(record)
            self.settle()

    def link_lost(self, worker: WorkerId) -> None:
        """The decode worker is gone: nobody will use what we compute for it."""
        for record in [r for r in self._by_request.values() if r.worker == worker]:
            unfinished = record.first_token is None and not record.given_up
            self._give_up(record)
            if unfinished:
                self._port.send(
                    record.conn,
                    Failed(record.request_id, "decode_lost", f"decode worker {worker} is gone"),
                )
        self.settle()

    def _give_up(self, record: _Handoff) -> None:
        if record.given_up:
            return
        record.given_up = True
        self._owners.drop(record.request_id)
        if record.pull is not None:
            self._puller.give_up(record.pull)
        elif record.first_token is None:
            if self._tiering is not None:
                self._tiering.abort(record.request_id)
            self._engine.abort(record.request_id)

    def _bury(self, handoff: HandoffId) -> None:
        self._tombstones[handoff] = None
        while len(self._tombstones) > MAX_TOMBSTONES:
            self._tombstones.popitem(last=False)
