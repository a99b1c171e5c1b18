"""Decode: grant room first, take over when the KV is there, give the room back whatever happens.

A granted block may be written by another process at any moment. It is reused only after the
writer has confirmed the fence or is known to be dead (design: KV lifetime). A closed socket alone
is no proof of death: the process is watched until it is gone or comes back on a new link, which it
opens only after it has stopped writing on the old one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from splitserve.clock import Clock
from splitserve.engine.api import Engine
from splitserve.errors import CallerError
from splitserve.ids import HandoffId, Incarnation, RequestId, WorkerId
from splitserve.protocol.control import Failed
from splitserve.protocol.fingerprint import differences
from splitserve.protocol.handoff import (
    Attach,
    Attached,
    Fence,
    FenceRequest,
    Grant,
    GrantTarget,
    KVReady,
    Refuse,
    Renew,
    Reserve,
)
from splitserve.protocol.whereabouts import UNKNOWN, Whereabouts
from splitserve.roles.liveness import ProcessWatch
from splitserve.roles.owners import Owners
from splitserve.roles.port import ConnId, Port
from splitserve.roles.refusal import refusal_code


@dataclass(frozen=True, slots=True)
class Identity:
    """Who and where this worker is, and what must agree with its peers. ``peer`` describes its KV
    pool."""

    worker: WorkerId
    incarnation: Incarnation
    connector: str
    fingerprint: dict[str, str]
    peer: bytes
    whereabouts: Whereabouts = UNKNOWN


@dataclass(frozen=True, slots=True)
class _Writer:
    """``link`` is unique per connection and is the writer's name in the engine's ledger."""

    conn: ConnId
    link: str
    incarnation: Incarnation
    watch: ProcessWatch

    @property
    def ledger_name(self) -> WorkerId:
        return WorkerId(self.link)


@dataclass(frozen=True, slots=True)
class _Granted:
    request_id: RequestId
    conn: ConnId
    writer: WorkerId
    epoch: int
    lease_s: float
    expires: float


class Decode:
    def __init__(
        self,
        engine: Engine,
        port: Port,
        owners: Owners,
        identity: Identity,
        clock: Clock,
        watch: Callable[[int], ProcessWatch],
    ) -> None:
        self._engine = engine
        self._port = port
        self._owners = owners
        self._identity = identity
        self._clock = clock
        self._watch = watch
        self._writers: dict[WorkerId, _Writer] = {}
        self._unlinked: list[_Writer] = []
        self._granted: dict[HandoffId, _Granted] = {}
        self._handoff_of: dict[RequestId, HandoffId] = {}

    @property
    def linked(self) -> tuple[str, ...]:
        """The prefill workers that may write here."""
        return tuple(self._writers)

    @property
    def open_grants(self) -> int:
        return len(self._granted)

    def attach(self, conn: ConnId, message: Attach) -> None:
        """A prefill worker offers to write. Its earlier links end here."""
        own = self._identity
        link = f"{message.worker}/{message.incarnation}/{conn}>{own.incarnation}"
        self._port.send(
            conn,
            Attached(own.worker, own.incarnation, link, own.fingerprint, own.peer, own.whereabouts),
        )
        if message.connector != own.connector or differences(own.fingerprint, message.fingerprint):
            return  # the writer sees the same difference in Attached and reports it
        earlier = self._writers.get(message.worker)
        if earlier is not None:
            self.link_lost(earlier.conn)
            self._port.close(earlier.conn)
        for writer in [w for w in self._unlinked if w.incarnation == message.incarnation]:
            self._forget(writer)
        watch = self._watch(message.pid)
        self._writers[message.worker] = _Writer(conn, link, message.incarnation, watch)

    def link_lost(self, conn: ConnId) -> None:
        """No KVReady can come any more. Blocks wait for proof that nothing is written either."""
        worker = next((w for w, writer in self._writers.items() if writer.conn == conn), None)
        if worker is None:
            return
        writer = self._writers.pop(worker)
        for handoff in [h for h, g in self._granted.items() if g.writer == worker]:
            self._engine.cancel(handoff)
            self._fail(handoff, "writer_lost", f"prefill worker {worker} is gone")
        self._unlinked.append(writer)
        self._forget_dead()

    def _forget_dead(self) -> None:
        for writer in [w for w in self._unlinked if w.watch.dead()]:
            self._forget(writer)

    def _forget(self, writer: _Writer) -> None:
        writer.watch.close()
        self._unlinked.remove(writer)
        self._engine.writer_gone(writer.ledger_name)

    def reserve(self, conn: ConnId, message: Reserve) -> None:
        answer = self._grant(conn, message)
        self._port.send(conn, answer)

    def _grant(self, conn: ConnId, message: Reserve) -> Grant | Refuse:
        handoff, request = message.handoff, message.request
        writer = self._writers.get(message.writer)
        if writer is None:
            return Refuse(
                handoff, "not_linked", f"prefill worker {message.writer} is not linked here", True
            )
        if request.request_id in self._owners:
            return Refuse(handoff, "duplicate", "the request id is in use here", False)
        try:
            reservation = self._engine.reserve(handoff, request, writer.ledger_name)
        except CallerError as error:
            return Refuse(handoff, refusal_code(error), error.message, False, error.param)
        if reservation is None:
            return Refuse(handoff, "no_blocks", "no room for the prompt's KV now", True)
        self._granted[handoff] = _Granted(
            request.request_id,
            conn,
            message.writer,
            reservation.epoch,
            message.lease_s,
            self._clock() + message.lease_s,
        )
        self._handoff_of[request.request_id] = handoff
        self._owners.add(request.request_id, conn, "decode")
        target = GrantTarget(
            handoff,
            reservation.epoch,
            self._identity.worker,
            writer.link,
            reservation.skip_blocks,
            reservation.blocks,
            reservation.cached_blocks,
        )
        return Grant(target, reservation.cached_tokens)

    def kv_ready(self, conn: ConnId, message: KVReady) -> None:
        """Late and duplicate ones have no effect: the engine knows the epoch."""
        granted = self._granted.get(message.handoff)
        if granted is None or self._writer_conn(granted.writer) != conn:
            return
        if self._engine.activate(message.handoff, message.epoch, message.first_token):
            del self._granted[message.handoff]
            self._handoff_of.pop(granted.request_id, None)

    def fence(self, message: Fence) -> None:
        self._engine.fence(message.handoff, message.epoch)

    def renew(self, message: Renew) -> None:
        now = self._clock()
        for handoff in message.handoffs:
            granted = self._granted.get(handoff)
            if granted is not None:
                self._granted[handoff] = replace(granted, expires=now + granted.lease_s)

    def abort(self, request_id: RequestId) -> None:
        handoff = self._handoff_of.get(request_id)
        if handoff is None:
            self._engine.abort(request_id)
        else:
            self._cancel(handoff)
        self._owners.drop(request_id)

    def tick(self, now: float) -> None:
        """Ends grants whose writer was not heard of for a lease; looks for dead writers."""
        self._forget_dead()
        for handoff in [h for h, granted in self._granted.items() if granted.expires <= now]:
            self._cancel_and_fail(handoff)

    def _cancel_and_fail(self, handoff: HandoffId) -> None:
        granted = self._granted[handoff]
        self._cancel(handoff)
        self._report(granted, "lease_expired", f"no KV from {granted.writer} within its lease")

    def _cancel(self, handoff: HandoffId) -> None:
        granted = self._granted.pop(handoff)
        self._handoff_of.pop(granted.request_id, None)
        epoch = self._engine.cancel(handoff)
        conn = self._writer_conn(granted.writer)
        if epoch is not None and conn is not None:
            self._port.send(conn, FenceRequest(handoff, epoch))

    def _fail(self, handoff: HandoffId, code: str, reason: str) -> None:
        granted = self._granted.pop(handoff, None)
        if granted is not None:
            self._handoff_of.pop(granted.request_id, None)
            self._report(granted, code, reason)

    def _report(self, granted: _Granted, code: str, reason: str) -> None:
        self._owners.drop(granted.request_id)
        self._port.send(granted.conn, Failed(granted.request_id, code, reason))

    def _writer_conn(self, worker: WorkerId) -> ConnId | None:
        writer = self._writers.get(worker)
        return None if writer is None else writer.conn
