"""The set of workers: who is there, who may be used, who is linked to whom."""

import logging
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Protocol

from splitserve.clock import Clock
from splitserve.errors import ConfigError
from splitserve.ids import WorkerId
from splitserve.protocol.codec import Message
from splitserve.protocol.control import (
    DRAIN_GRACE_S,
    Abort,
    Failed,
    Holding,
    Inventory,
    Pair,
    RoleSet,
    SetRole,
    Submit,
    Welcome,
)
from splitserve.protocol.handoff import Prefill, Reserve
from splitserve.protocol.telemetry import Load
from splitserve.router.config import RouterConfig
from splitserve.router.ledger import Ledger
from splitserve.router.policy.base import WorkerView
from splitserve.router.workers.agreement import disagreements
from splitserve.router.workers.breaker import spared
from splitserve.router.workers.client import Connect, Order, WorkerClient
from splitserve.router.workers.pairing import WARM_UP_S, PairRequests, linked, pairs
from splitserve.router.workers.reconcile import FORGOTTEN, Questions, strays
from splitserve.router.workers.record import WorkerRecord, WorkerSnapshot

log = logging.getLogger(__name__)


class WorkerSink(Protocol):
    """Who is told what workers say of requests."""

    def message(self, worker: WorkerId, message: Message) -> None: ...

    def worker_lost(self, worker: WorkerId, reason: str) -> None: ...

    def room_changed(self) -> None:
        """A request that had no room may have some now."""
        ...


class WorkerRegistry:
    """Implements WorkerEvents. ``expected`` is the gateway's own fingerprint (may be empty)."""

    def __init__(
        self,
        config: RouterConfig,
        ledger: Ledger[Any],
        sink: WorkerSink,
        connect: Connect,
        expected: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._sink = sink
        self._connect = connect
        self._expected = expected
        self._clock = clock
        self._records: dict[str, WorkerRecord] = {}
        self._by_worker: dict[WorkerId, WorkerRecord] = {}
        self._connections = count(1)
        self._requests = PairRequests(config.pair_retry_s)
        self._was_ready = False

    def add(self, address: str) -> None:
        """Registers a worker and starts connecting to it. Raises ConfigError when known or bad."""
        if address in self._records:
            raise ConfigError(f"worker address {address} is given twice")
        client = self._connect(address, self)
        self._records[address] = WorkerRecord(client, added=self._clock())
        client.start()

    async def remove(self, address: str) -> None:
        """Forgets a worker; requests that run there go the way of a lost worker's."""
        record = self._records[address]
        record.client.drop("removed")
        del self._records[address]
        if record.welcome is not None:
            self._by_worker.pop(record.welcome.worker, None)
        await record.client.close()

    async def close(self) -> None:
        for record in self._records.values():
            await record.client.close()

    def send(self, worker: WorkerId, order: Order) -> bool:
        """False when the worker is not connected."""
        record = self._by_worker.get(worker)
        if record is None:
            return False
        if record.breaker.failures and isinstance(order, Submit | Reserve | Prefill):
            record.breaker.sent(self._clock())
        return record.client.send(order)

    def set_role(self, worker: WorkerId, role: str, grace_s: float = DRAIN_GRACE_S) -> bool:
        """Asks for another role (see SetRole); the worker's Load shows whether it took it on.
        False when it is not connected."""
        return self.send(worker, SetRole(role, grace_s))

    def views(self) -> list[WorkerView]:
        """Workers that new requests may go to; those that only fail are left out while there are
        others."""
        usable = list(self._usable())
        if any(record.breaker.failures for record in usable):
            chosen = spared({r.name: r.breaker for r in usable}, self._clock())
            usable = [record for record in usable if record.name in chosen]
        return [self._view(record) for record in usable]

    def refused(self, worker: WorkerId) -> None:
        """It has no room: not asked again before something there has changed."""
        record = self._by_worker.get(worker)
        if record is not None:
            record.full = True

    def freed(self, worker: WorkerId) -> None:
        """A request there has ended."""
        record = self._by_worker.get(worker)
        if record is not None:
            record.full = False

    def capacity_tokens(self) -> int:
        """The longest request any usable worker could ever hold; 0 when there is none."""
        return max((record.capacity_tokens() for record in self._usable()), default=0)

    def split(self) -> bool:
        """Whether this deployment has prefill and decode workers, usable now or not."""
        return {"prefill", "decode"} <= {record.role for record in self._records.values()}

    def ready(self) -> str | None:
        """None when a request would succeed now, else why not.

        The first time only once all workers are met and links are made too, so that no request has
        to do without; but those that do not come are not waited for long.
        """
        if any(self._usable()):
            warming = [] if self._was_ready else self._warming()
            self._was_ready = not warming
            return "; ".join(warming) or None
        if not self._records:
            return "no worker is registered"
        return "no worker is usable: " + "; ".join(self.warnings())

    def _warming(self) -> list[str]:
        """What will soon be as it should, a line each."""
        now, records = self._clock(), list(self._records.values())
        new = [r for r in records if r.welcome is None and now - r.added < WARM_UP_S]
        return [
            *(f"{record.name} is being connected" for record in new),
            *(
                f"{p.name} and {d.name} are being linked"
                for p, d in self._requests.warming(records, now)
            ),
        ]

    def warnings(self) -> list[str]:
        """What is not as it should be, a line each: unusable workers, missing links."""
        lines = [
            f"{record.name}: {reason}"
            for record in self._records.values()
            if (reason := record.unusable()) is not None
        ]
        lines += [
            f"{decode.name}: prefill worker {prefill.name} is not linked"
            for prefill, decode in pairs(list(self._records.values()))
            if not linked(prefill, decode)
        ]
        return lines

    def snapshot(self) -> list[WorkerSnapshot]:
        """Every registered worker, for metrics."""
        return [self._snapshot(record) for record in self._records.values()]

    def tick(self) -> None:
        """Looks at the time: silent workers are dead, missing links are asked for again."""
        now = self._clock()
        for record in list(self._records.values()):
            if record.connected:
                self._check_silence(record, now)
            if record.known:
                self._reconcile(record, now)
        self._ask_for_links(now)

    # WorkerEvents

    def connecting(self, client: WorkerClient) -> None:
        record = self._records[client.address]
        record.connected = True
        record.heard = self._clock()
        record.suspected = False
        record.generation = next(self._connections)

    def welcomed(self, client: WorkerClient, welcome: Welcome) -> None:
        record = self._records[client.address]
        namesake = self._by_worker.get(welcome.worker)
        if namesake is not None and namesake is not record and namesake.connected:
            client.drop(f"another worker named {welcome.worker} is connected")
            return
        restarted = record.welcome is None or record.welcome.incarnation != welcome.incarnation
        self._note(record, welcome)
        orphans = self._ledger.take_orphans(welcome.worker)
        if not restarted:
            for request_id in orphans:
                client.send(Abort(request_id))
        log.info(
            "%s worker %s connected, %s",
            welcome.role,
            welcome.worker,
            "in a new life" if restarted else "again",
        )
        self._compare_fingerprints()
        self._ask_for_links(self._clock())

    def received(self, client: WorkerClient, message: Message) -> None:
        record = self._records[client.address]
        if record.welcome is None or not record.known:
            return  # a Load may overtake Welcome; nothing else can be meant for this connection
        record.heard = self._clock()
        record.suspected = False
        match message:
            case Load():
                self._note_load(record, record.welcome.worker, message)
            case Holding():
                self._note_holding(record, record.welcome.worker, message)
            case RoleSet():
                log.info("worker %s: role %s %s", record.name, message.role, message.refused)
            case _:
                # First, or what the message leads to would be sent there again.
                record.judge(message, record.heard)
                self._sink.message(record.welcome.worker, message)

    def lost(self, client: WorkerClient, reason: str) -> None:
        record = self._records[client.address]
        was_known = record.known
        if record.welcome is not None and self._ledger.at(record.welcome.worker):
            record.breaker.failed(self._clock())
        record.connected = record.known = record.full = record.leaving = False
        record.load = None
        record.questions = Questions()
        self._requests.forget(record.name)
        log.warning("worker %s lost: %s", record.name, reason)
        if was_known and record.welcome is not None:
            self._compare_fingerprints()
            self._sink.worker_lost(record.welcome.worker, reason)

    # Inside

    def _note(self, record: WorkerRecord, welcome: Welcome) -> None:
        if record.welcome is not None and record.welcome.worker != welcome.worker:
            del self._by_worker[record.welcome.worker]
        record.welcome = welcome
        record.known = True
        record.heard = self._clock()
        record.suspected = False
        self._by_worker[welcome.worker] = record

    def _note_load(self, record: WorkerRecord, worker: WorkerId, load: Load) -> None:
        before = record.load
        record.load = load
        self._ledger.reported(worker)
        if before is None or load.kv.free + load.kv.cached > before.kv.free + before.kv.cached:
            record.full = False
        self._sink.room_changed()

    def _reconcile(self, record: WorkerRecord, now: float) -> None:
        assert record.welcome is not None
        if record.questions.due(now):
            opened = self._ledger.at(record.welcome.worker)
            record.client.send(Inventory(record.questions.ask(opened, now)))

    def _note_holding(self, record: WorkerRecord, worker: WorkerId, message: Holding) -> None:
        asked = record.questions.answered(message.serial)
        if asked is None:
            return
        found = strays(asked, self._ledger.at(worker).keys(), message.requests)
        for request_id in found.at_worker:
            log.warning("worker %s holds %s for nobody: aborting it", worker, request_id)
            record.aborted_strays += 1
            record.client.send(Abort(request_id))
        for request_id in found.at_gateway:
            log.warning("worker %s does not know %s any more", worker, request_id)
            record.failed_strays += 1
            lost = Failed(request_id, FORGOTTEN, "the worker does not know the request")
            self._sink.message(worker, lost)

    def _check_silence(self, record: WorkerRecord, now: float) -> None:
        """Two looks have to agree: if this process was the one that slept, what the worker said
        meanwhile lies in the socket and is read before the second."""
        if now - record.heard < self._config.liveness_s:
            return
        if record.suspected:
            record.client.drop(f"silent for {now - record.heard:.1f} s")
        record.suspected = True

    def _compare_fingerprints(self) -> None:
        known = sorted((r for r in self._records.values() if r.known), key=lambda r: r.generation)
        problems = disagreements(
            self._expected,
            [(r.name, r.welcome.fingerprint) for r in known if r.welcome is not None],
        )
        for record in known:
            problem = problems.get(record.name, "")
            if problem and problem != record.problem:
                log.error("worker %s is not used: %s", record.name, problem)
            record.problem = problem

    def _ask_for_links(self, now: float) -> None:
        for prefill, decode in self._requests.due(list(self._records.values()), now):
            assert decode.welcome is not None
            prefill.client.send(Pair(decode.welcome.worker, decode.welcome.address))

    def _usable(self) -> Iterator[WorkerRecord]:
        return (r for r in self._records.values() if r.unusable() is None)

    def _view(self, record: WorkerRecord) -> WorkerView:
        assert record.welcome is not None
        worker = record.welcome.worker
        return record.view(
            len(self._ledger.at(worker)),
            self._ledger.pending_tokens(worker),
            self._ledger.recent_tokens(worker),
        )

    def _snapshot(self, record: WorkerRecord) -> WorkerSnapshot:
        known = record.welcome is not None
        in_flight = len(self._ledger.at(record.welcome.worker)) if record.welcome else 0
        return WorkerSnapshot(
            worker=record.name if known else "",
            role=record.role,
            address=record.client.address,
            connected=record.connected,
            unusable=record.unusable() or "",
            in_flight=in_flight,
            kv=None if record.load is None else record.load.kv,
            load=record.load,
            breaker=record.breaker.state(self._clock()).value,
            aborted_strays=record.aborted_strays,
            failed_strays=record.failed_strays,
            connector=record.connector,
        )
