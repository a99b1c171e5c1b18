"""What the router knows of one worker."""

from dataclasses import dataclass

from splitserve.ids import WorkerId
from splitserve.protocol.control import Welcome
from splitserve.protocol.telemetry import KVCounts, Load
from splitserve.router.policy.base import WorkerView
from splitserve.router.workers.client import WorkerClient


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """``welcome`` is the last one and stays when the connection ends; ``load`` does not.

    ``heard`` is when the worker last said anything, ``suspected`` that it was silent too long at
    the last look. ``generation`` orders connections, the oldest first. ``problem`` says why a
    connected worker must not be used. ``full`` is set by a refusal for lack of room and cleared
    when room may have come.
    """

    client: WorkerClient
    welcome: Welcome | None = None
    load: Load | None = None
    connected: bool = False
    known: bool = False
    heard: float = 0.0
    suspected: bool = False
    generation: int = 0
    problem: str = ""
    full: bool = False

    @property
    def name(self) -> str:
        """For people: the worker's own name once it is known."""
        return self.client.address if self.welcome is None else self.welcome.worker

    @property
    def role(self) -> str:
        return "" if self.welcome is None else self.welcome.role

    @property
    def connector(self) -> str:
        return "" if self.welcome is None else self.welcome.connector

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
        return "draining" if self.load.draining else None

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
            role=self.welcome.role,
            in_flight=in_flight,
            running=load.running,
            waiting=load.waiting,
            waiting_tokens=waiting_tokens,
            free_tokens=0 if self.full else max(0, room - waiting_tokens - recent_tokens),
            linked=tuple(WorkerId(name) for name in load.linked),
        )


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """One worker for metrics and pages. ``kv`` and ``load`` are None when it is not connected;
    ``unusable`` is empty when requests may go there."""

    worker: str
    role: str
    address: str
    connected: bool
    unusable: str
    in_flight: int
    kv: KVCounts | None
    load: Load | None
