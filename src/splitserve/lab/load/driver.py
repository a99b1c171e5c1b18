"""Sends a run's load and gives every request's record.

Open loop: a request leaves when it is due, whatever became of those before; how late the client
was is in its record. Closed loop: a fixed number of users, each asking again after its answer.
One process and one event loop; a load at which its lag shows is spread over several (``spread``).
"""

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from splitserve.lab.load.record import Outcome, RequestRecord
from splitserve.lab.load.request import LoadRequest
from splitserve.lab.load.schedule import Due

LEAD_S: Final = 0.05
"""How long before it is due a request is made ready: encoded, its connection opened."""

REFUSED_PAUSE_S: Final = 0.5
"""What a user of the closed loop waits after a refusal. A server that is down would else be asked
as fast as it can refuse, until all requests are used up."""


class Client(Protocol):
    """What a driver needs of ``client.LoadClient``."""

    def now(self) -> float:
        """Seconds since the run's start."""

    async def send(
        self,
        request: LoadRequest,
        intended_s: float,
        *,
        cut_s: float,
        warmup: bool,
    ) -> RequestRecord: ...

    def unsent(
        self, request: LoadRequest, intended_s: float, outcome: Outcome, *, warmup: bool
    ) -> RequestRecord: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; ``total`` None where nobody can know."""

    ended: int
    total: int | None
    elapsed_s: float


Watch = Callable[[RequestRecord, Progress], None]
"""Told of every request as it ends. It runs between requests: it must be quick."""


@dataclass(frozen=True, slots=True)
class Patience:
    """``drain_s``: how long after the last arrival answers are waited for. ``late_s``: a request
    that the client is later for than this is not sent at all."""

    drain_s: float = 120.0
    late_s: float = 1.0


async def run_open(
    client: Client, schedule: Sequence[Due], patience: Patience, watch: Watch
) -> list[RequestRecord]:
    """Sends ``schedule``; records come in the order in which requests ended.

    A turn whose time had not come when the drain ended is a TIMEOUT_TOTAL that was never sent: its
    session was too slow.
    """
    total = sum(len(due.turns) for due in schedule)
    last_s = max((due.at_s for due in schedule), default=0.0)
    run = _Run(client, total, last_s + patience.drain_s, watch)
    with quiet_memory():
        async with asyncio.TaskGroup() as tasks:
            for due in sorted(schedule, key=lambda due: due.at_s):
                # From the run's start, not from the last one: errors must not add up.
                await asyncio.sleep(max(0.0, due.at_s - LEAD_S - client.now()))
                tasks.create_task(run.session(due, patience.late_s))
    return run.records


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """``users`` ask until ``until_s`` of the run; requests before ``warmup_s`` are warm-up."""

    users: int
    until_s: float
    warmup_s: float = 0.0


async def run_closed(
    client: Client,
    talks: Sequence[tuple[LoadRequest, ...]],
    loop: ClosedLoop,
    patience: Patience,
    watch: Watch,
) -> list[RequestRecord]:
    """Every user takes the next of ``talks`` when done with the last, until time or talks end.

    A request is due when its user is ready for it, so that lag is the client's own here too.
    """
    run = _Run(client, None, loop.until_s + patience.drain_s, watch)
    waiting = iter(talks)

    async def user() -> None:
        while client.now() < loop.until_s:
            turns = next(waiting, None)
            if turns is None:
                return
            at_s = client.now()
            outcome = await run.session(Due(at_s, turns, at_s < loop.warmup_s), patience.late_s)
            if outcome in (Outcome.CONNECT_ERROR, Outcome.HTTP_ERROR):
                await asyncio.sleep(REFUSED_PAUSE_S)

    with quiet_memory():
        async with asyncio.TaskGroup() as tasks:
            for _ in range(loop.users):
                tasks.create_task(user())
    return run.records


class _Run:
    def __init__(self, client: Client, total: int | None, cut_s: float, watch: Watch) -> None:
        self.records: list[RequestRecord] = []
        self._client = client
        self._total = total
        self._cut_s = cut_s
        self._watch = watch

    async def session(self, due: Due, late_s: float) -> Outcome:
        """Gives the last turn's outcome."""
        ended_s = due.at_s
        for position, request in enumerate(due.turns):
            intended_s = ended_s + (request.think_s if position else 0.0)
            record = await self._turn(request, intended_s, due.warmup, late_s)
            self._keep(record)
            ended_s = record.ended_s
        return record.outcome

    async def _turn(
        self, request: LoadRequest, intended_s: float, warmup: bool, late_s: float
    ) -> RequestRecord:
        if intended_s >= self._cut_s:
            return self._client.unsent(request, intended_s, Outcome.TIMEOUT_TOTAL, warmup=warmup)
        await asyncio.sleep(max(0.0, intended_s - LEAD_S - self._client.now()))
        if self._client.now() > intended_s + late_s:
            return self._client.unsent(request, intended_s, Outcome.NEVER_SENT, warmup=warmup)
        return await self._client.send(request, intended_s, cut_s=self._cut_s, warmup=warmup)

    def _keep(self, record: RequestRecord) -> None:
        self.records.append(record)
        self._watch(record, Progress(len(self.records), self._total, self._client.now()))


@contextmanager
def quiet_memory() -> Iterator[None]:
    """No garbage collection inside: a collection would stop the clock reader for milliseconds."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
