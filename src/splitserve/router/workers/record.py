"""What the router knows of one worker."""

from dataclasses import dataclass, field
from typing import Final

from splitserve.ids import WorkerId
from splitserve.protocol.codec import Message
from splitserve.protocol.control import Failed, Welcome
from splitserve.protocol.handoff import Refuse
from splitserve.protocol.telemetry import KVCounts, Load
from splitserve.router.policy.base import WorkerView
from splitserve.router.workers.breaker import Breaker, verdict
from splitserve.router.workers.client import WorkerClient
from splitserve.router.workers.reconcile import Questions

STALLED_S: Final = 10.0
"""A worker that has had work for so long and made no step serves nobody."""


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """``welcome`` is the last one and stays when the connection ends; ``load`` does not.

    ``added`` is when it was registered, ``heard`` when it last said anything, ``suspected`` that it
    was silent too long at the last look. ``generation`` orders connections, the oldest first.
    ``problem`` says why a connected worker must not be used. ``full`` is set by a refusal for lack
    of room and cleared when room may have come; ``leaving`` by one because it drains, before its
    Load says so.
    ``aborted_strays`` and ``failed_strays`` count what the reconciler ended at the worker and here.
    """

    client: WorkerClient
    added: float = 0.0
    welcome: Welcome | None = None
    load: Load | None = None
    connected: bool = False
    known: bool = False
    heard: float = 0.0
    suspected: bool = False
    generation: int = 0
    problem: str = ""
    full: bool = False
    leaving: bool = False
    breaker: Breaker = field(default_factory=Breaker)
    questions: Questions = field(default_factory=Questions)
    aborted_strays: int = 0
    failed_strays: int = 0

    @property
    def name(self) -> str:
        """For people: the worker's own name once it is known."""
        return self.client.address if self.welcome is None else self.welcome.worker

    @property
    def role(self) -> str:
        """What the worker wants to be sent now, or last wanted."""
        if self.load is not None and self.load.role:
            return self.load.role
        return "" if self.welcome is None else self.welcome.role

    @property
    def connector(self) -> str:
        return "" if self.welcome is None else self.welcome.connector

    def judge(self, message: Message, now: float) -> None:
        """What the message says of the worker itself."""
        if isinstance(message, Failed | Refuse):
            self.leaving = self.leaving or message.code == "draining"
        elif not self.breaker.failures:
            return  # tokens of a worker that works: the hot path
        works = verdict(message)
        if works:
            self.breaker.succeeded()
        elif works is not None:
            self.breaker.failed(now)

    def unusable(self) -> str | None:
        """Why no new request may go there; None when it may."""
        if not self.connected:
            return "not connected"
        if not self.known:
            return "has not said who it is"
        if self.problem:
            return self.problem
        if self.load is None:
            return "has not reported its load"
        if self.leaving or self.load.draining:
            return "draining"
        if self.load.since_step_s >= STALLED_S:
            return f"has work and made no step for {self.load.since_step_s:.0f} s"
        return None

    def capacity_tokens(self) -> int:
        """Longest prompt and answer together that could ever run there."""
        if self.welcome is None or self.load is None:
            return 0
        return min(self.welcome.max_model_len, self.load.kv.total * self.welcome.block_size)

    def view(self, in_flight: int, pending_tokens: int, recent_tokens: int) -> WorkerView:
        """For a policy; the counts are this gateway's own (see Ledger). Needs a load."""
        assert self.welcome is not None
        assert self.load is not None
        load = self.load
        waiting_tokens = max(load.waiting_tokens, pending_tokens)
        room = (load.kv.free + load.kv.cached) * self.welcome.block_size
        return WorkerView(
            worker=self.welcome.worker,
            role=self.role,
            in_flight=in_flight,
            running=load.running,
            waiting=load.waiting,
            waiting_tokens=waiting_tokens,
            free_tokens=0 if self.full else max(0, room - waiting_tokens - recent_tokens),
            linked=tuple(WorkerId(name) for name in load.linked),
            seats=self.welcome.max_num_seqs,
            incarnation=self.welcome.incarnation,
            pool_tokens=load.kv.total * self.welcome.block_size,
        )


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """One worker for metrics and pages. ``kv`` and ``load`` are None when it is not connected;
    ``unusable`` is empty when requests may go there. ``breaker`` is ``closed``, ``open`` or
    ``half_open``. ``aborted_strays`` requests were ended at the worker because nobody here knew
    them, ``failed_strays`` here because the worker did not. ``connector`` is empty until the worker
    has said it."""

    worker: str
    role: str
    address: str
    connected: bool
    unusable: str
    in_flight: int
    kv: KVCounts | None
    load: Load | None
    breaker: str
    aborted_strays: int
    failed_strays: int
    connector: str
