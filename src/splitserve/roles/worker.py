"""One worker without its sockets: messages in, messages out through a Port. Not thread-safe."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from splitserve.clock import Clock
from splitserve.engine.api import Engine, FirstToken, SeqFailure, SeqOutput
from splitserve.ids import HandoffId, Incarnation, RequestId, WorkerId
from splitserve.protocol.codec import Message
from splitserve.protocol.control import (
    Abort,
    Began,
    Drain,
    Failed,
    Hello,
    Holding,
    Inventory,
    Pair,
    RoleSet,
    SetRole,
    StepTokens,
    Submit,
    Welcome,
)
from splitserve.protocol.generate import TokenChunk
from splitserve.protocol.handoff import (
    Attach,
    Attached,
    Fence,
    FenceRequest,
    KVReady,
    Prefill,
    Refuse,
    Renew,
    Reserve,
)
from splitserve.protocol.telemetry import Load
from splitserve.protocol.whereabouts import UNKNOWN, Whereabouts
from splitserve.roles.colocated import Colocated
from splitserve.roles.decode import Decode, Identity
from splitserve.roles.departure import Departure
from splitserve.roles.links import LinkIdentity, Links
from splitserve.roles.liveness import ProcessWatch
from splitserve.roles.owners import Owners
from splitserve.roles.pace import Pace
from splitserve.roles.port import ConnId, Port
from splitserve.roles.prefill import PrefillRole
from splitserve.roles.role_book import RoleBook
from splitserve.roles.tiering import Tiering
from splitserve.transfer.sharded import ShardedConnector

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker says of itself in Welcome and on links. ``role`` is its first."""

    worker: WorkerId
    incarnation: Incarnation
    role: str
    address: str
    pid: int
    connector: str
    fingerprint: dict[str, str]
    max_num_seqs: int | None = None
    whereabouts: Whereabouts = UNKNOWN


class Worker:
    """Joins the three roles over one engine, the connectors of its pools, and the KV tier where
    there is one."""

    def __init__(
        self,
        engine: Engine,
        connector: ShardedConnector,
        port: Port,
        facts: WorkerFacts,
        clock: Clock,
        watch: Callable[[int], ProcessWatch],
        tiering: Tiering | None = None,
    ) -> None:
        self._engine = engine
        self._port = port
        self._facts = facts
        self._clock = clock
        self._tiering = tiering
        self._owners = Owners()
        self._gateways: dict[str, ConnId] = {}
        self._role = RoleBook(facts.role)
        self._departure = Departure()
        self._pace = Pace()
        self._links = Links(
            port,
            connector,
            LinkIdentity(
                facts.worker,
                facts.incarnation,
                facts.pid,
                facts.connector,
                facts.fingerprint,
                engine.regions()[0].device,
                facts.whereabouts,
            ),
        )
        identity = Identity(
            facts.worker,
            facts.incarnation,
            facts.connector,
            facts.fingerprint,
            connector.describe(),
            facts.whereabouts,
        )
        self._colocated = Colocated(engine, port, self._owners, clock, tiering)
        self._decode = Decode(engine, port, self._owners, identity, clock, watch)
        self._prefill = PrefillRole(
            engine, port, self._owners, self._links, connector, clock, tiering
        )

    def handle(self, conn: ConnId, message: Message, waited_s: float = 0.0) -> None:
        """One message from outside, which came ``waited_s`` ago."""
        match message:
            case Submit():
                self._submit(conn, message, waited_s)
            case Reserve():
                self._reserve(conn, message)
            case Prefill():
                self._start_prefill(conn, message, waited_s)
            case Abort():
                self._abort(conn, message.request_id)
            case Hello():
                self._greet(conn, message.gateway)
            case Pair():
                self._links.pair(message)
            case Drain():
                self.drain(message.grace_s)
            case _:
                self._handle_seldom(conn, message)

    def _handle_seldom(self, conn: ConnId, message: Message) -> None:
        match message:
            case SetRole():
                self._set_role(conn, message)
            case Inventory():
                held = {*self._owners.of(conn), *self._prefill.held(conn)}
                self._port.send(conn, Holding(message.serial, tuple(held)))
            case _:
                self._handle_link(conn, message)

    def _handle_link(self, conn: ConnId, message: Message) -> None:
        match message:
            case Attach():
                self._decode.attach(conn, message)
            case Attached():
                self._links.attached(conn, message)
            case KVReady():
                self._decode.kv_ready(conn, message)
            case Fence():
                self._decode.fence(message)
            case Renew():
                self._decode.renew(message)
            case FenceRequest():
                self._prefill.fence_request(conn, message)
            case _:
                log.warning("%s is not for a worker; dropped", type(message).__name__)

    def link_opened(self, conn: ConnId) -> None:
        """A connection asked for with ``Port.open_link`` is there."""
        self._links.opened(conn)

    def connection_lost(self, conn: ConnId) -> None:
        """Whoever it was: what it waited for is given up, what it could write into is freed."""
        worker = self._links.lost(conn)
        if worker is not None:
            self._prefill.link_lost(worker)
        self._decode.link_lost(conn)
        self._gateways = {name: at for name, at in self._gateways.items() if at != conn}
        for request_id in self._owners.of(conn):
            self._abort(conn, request_id)

    def _greet(self, conn: ConnId, gateway: str) -> None:
        """A gateway that is here again has lost its earlier connection, whose end never arrived."""
        before = self._gateways.get(gateway)
        if before is not None and before != conn:
            log.info("%s is back: its earlier connection is dead", gateway)
            self.connection_lost(before)
            self._port.close(before)
        self._gateways[gateway] = conn
        self._port.send(conn, self._welcome())
        self._port.send(conn, self.load())

    def step(self) -> None:
        """Runs one batch and sends what it brought, one frame per gateway."""
        start = self._clock()
        outputs = self._engine.step(self._prefill)
        self._prefill.stepped(start, told=bool(outputs))
        self._pace.stepped(self._engine.last_step())
        chunks: dict[ConnId, list[TokenChunk]] = {}
        began: dict[ConnId, list[Began]] = {}
        for output in outputs:
            owner = self._owners.get(output.request_id)
            if owner is None:
                continue
            chunks.setdefault(owner.conn, []).append(_chunk(output))
            if output.first is not None:
                told = _began(output.request_id, output.first, owner.waited_s)
                began.setdefault(owner.conn, []).append(told)
            if owner.role == "prefill":
                self._prefill.on_output(output)
            elif output.finish_reason is not None:
                self._owners.drop(output.request_id)
        for conn, ready in chunks.items():
            self._port.send(conn, StepTokens(tuple(ready), tuple(began.get(conn, ()))))
        for failure in self._engine.failures():
            self._fail(failure)
        self._prefill.settle()

    def _fail(self, failure: SeqFailure) -> None:
        """After the tokens that were its last."""
        request_id = failure.request_id
        owner = self._owners.get(request_id)
        if owner is None:
            return
        if owner.role == "prefill":
            self._prefill.abort(owner.conn, request_id)
        else:
            self._owners.drop(request_id)
        self._port.send(owner.conn, Failed(request_id, "invalid", failure.reason))

    def tick(self, now: float) -> None:
        """Time has passed: leases, graces, and ends of transfers and loads while no step runs."""
        self._decode.tick(now)
        if self._tiering is not None:
            self._tiering.tick()
        self._prefill.settle()
        overdue = self._role.take_overdue(now)
        if overdue:
            self._hand_over(overdue, "role_changed", "the worker has another role now")
        if self._departure.grace_is_over(now):
            self._hand_over(self._owners.kinds(), "draining", "the worker is leaving")

    def _hand_over(self, requests: Iterable[RequestId], code: str, reason: str) -> None:
        """Ends what runs, so that whoever asked for it continues it elsewhere."""
        for request_id in requests:
            owner = self._owners.get(request_id)
            if owner is not None:
                self._abort(owner.conn, request_id)
                self._port.send(owner.conn, Failed(request_id, code, reason))

    def has_work(self) -> bool:
        return self._engine.has_work()

    def must_listen(self) -> bool:
        """Whether ``step`` might wait for the device while ends of transfers are to be told."""
        return self._prefill.pending and self._engine.computing()

    def early_by(self) -> float:
        """Seconds until ``step`` is due: what arrives before that can still be in its batch, and
        the device does not wait for it."""
        launch_at = self._pace.launch_at()
        if launch_at is None or not self._engine.computing():
            return 0.0
        return max(0.0, launch_at - self._clock())

    def transfers_pending(self) -> bool:
        """Whether something ends soon by itself, which nobody says: see ``tick``."""
        loading = self._tiering is not None and self._tiering.pending
        return loading or self._prefill.pending or self._prefill.pulling

    @property
    def drained(self) -> bool:
        """Draining, nothing is owed to anyone, and everyone has had time to hear of it."""
        owing = bool(self._owners) or self._prefill.pending
        return self._departure.over(self._clock(), owing)

    def drain(self, grace_s: float) -> None:
        """See Drain."""
        log.info("draining: what runs may stay for %g s", grace_s)
        self._departure.begin(self._clock(), grace_s)

    def _set_role(self, conn: ConnId, message: SetRole) -> None:
        before = self._role.role
        refused = self._role.change(
            message.role, self._clock(), message.grace_s, self._owners.kinds()
        )
        if self._role.role != before:
            log.info("the role is %s now, it was %s", self._role.role, before)
        self._port.send(conn, RoleSet(self._role.role, refused))

    def renewals(self) -> dict[ConnId, tuple[HandoffId, ...]]:
        """What the server tells each decode worker by time."""
        active = self._prefill.active()
        return {
            conn: active[worker] for conn, worker in self._links.conns().items() if worker in active
        }

    def load(self) -> Load:
        stats = self._engine.stats()
        return Load(
            self._engine.counts(),
            stats.running,
            stats.waiting,
            stats.waiting_tokens,
            stats.steps,
            stats.preemptions,
            stats.prefix_hit_tokens,
            stats.prefix_query_tokens,
            self._decode.linked,
            self._departure.begun,
            self._role.role,
            computed_tokens=stats.computed_tokens,
            pulled_tokens=self._prefill.pulled_tokens,
            pulled_bytes=self._prefill.pulled_bytes,
            tier=() if self._tiering is None else self._tiering.counts(),
            ways=self._links.ways(),
            skipped_pulls=self._prefill.skipped_pulls,
        )

    def _submit(self, conn: ConnId, message: Submit, waited_s: float) -> None:
        if self._departure.begun:
            self._port.send(
                conn, Failed(message.request.request_id, "draining", "the worker is leaving")
            )
            return
        self._colocated.submit(conn, message, waited_s)

    def _reserve(self, conn: ConnId, message: Reserve) -> None:
        if self._departure.begun:
            self._port.send(
                conn, Refuse(message.handoff, "draining", "the worker is leaving", True)
            )
            return
        self._decode.reserve(conn, message)

    def _start_prefill(self, conn: ConnId, message: Prefill, waited_s: float) -> None:
        if self._departure.begun:
            self._port.send(
                conn, Refuse(message.target.handoff, "draining", "the worker is leaving", True)
            )
            return
        self._prefill.prefill(conn, message, waited_s)

    def _abort(self, conn: ConnId, request_id: RequestId) -> None:
        owner = self._owners.get(request_id)
        if owner is None:
            self._prefill.abort(conn, request_id)  # its last writes may still be under way
        elif owner.conn != conn:
            log.warning("connection %d aborts %s, which is not its own", conn, request_id)
        elif owner.role == "prefill":
            self._prefill.abort(conn, request_id)
        elif owner.role == "decode":
            self._decode.abort(request_id)
        else:
            self._colocated.abort(request_id)

    def _welcome(self) -> Welcome:
        facts, info = self._facts, self._engine.describe()
        return Welcome(
            worker=facts.worker,
            incarnation=facts.incarnation,
            role=self._role.role,
            address=facts.address,
            pid=facts.pid,
            model=info.name,
            connector=facts.connector,
            max_model_len=info.max_model_len,
            vocab_size=info.vocab_size,
            block_size=info.layout.block_size,
            kv_token_bytes=info.layout.token_bytes,
            fingerprint=facts.fingerprint,
            max_num_seqs=facts.max_num_seqs,
        )


def _chunk(output: SeqOutput) -> TokenChunk:
    return TokenChunk(
        output.request_id,
        output.index,
        (output.token_id,),
        output.finish_reason,
        output.stop_reason,
        None if output.logprob is None else (output.logprob,),
        output.cached_tokens,
    )


def _began(request_id: RequestId, first: FirstToken, waited_s: float) -> Began:
    return Began(request_id, waited_s + first.queue_s, first.first_s)
