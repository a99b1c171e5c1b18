"""One run: what it asks is sent, and everything that is known of it goes to disk."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from splitserve.clock import monotonic
from splitserve.errors import UnavailableError
from splitserve.lab.arms.base import Arm, Described
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.driver import (
    ClosedLoop,
    Patience,
    Progress,
    run_closed,
    run_open,
)
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.load.request import Asking
from splitserve.lab.load.spread.crew import Crew, LoadProcessLost
from splitserve.lab.load.spread.work import Work, split, work_of
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.target import resolve
from splitserve.lab.plan.phases import Run
from splitserve.lab.plan.study import Study
from splitserve.lab.run.environment import environment
from splitserve.lab.run.timing import ClosedLoad, Load, OpenLoad, requests_in

_NEVER_S = 1e9
"""A closed run ends with its requests."""


@dataclass(frozen=True, slots=True)
class Live:
    """How far a run is. ``intended``: requests due by now, None in a closed loop. ``records``: of
    all that ended, in that order."""

    ended: int
    intended: int | None
    total: int
    elapsed_s: float
    records: Sequence[RequestRecord]


OnLive = Callable[[Live], None]


@dataclass(slots=True)
class Taken:
    """All that one run gave. Environments are flat text, metrics as the arm showed them."""

    records: list[RequestRecord] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    metrics_before: dict[str, float] = field(default_factory=dict)
    metrics_after: dict[str, float] = field(default_factory=dict)
    # What ended of the server, or of the client, in words.
    not_alive: str | None = None

    def server(self) -> dict[str, object]:
        """What ``server.json`` holds."""
        return {
            "before": {"environment": self.before, "metrics": self.metrics_before},
            "after": {"environment": self.after, "metrics": self.metrics_after},
        }


@dataclass(frozen=True, slots=True)
class Sending:
    """How a run's requests are sent: the arm's endpoint, the plan's limits, a salt or none, and
    from how many processes where requests are due at given times."""

    study: Study
    arm: Arm
    run: Run
    salt: str | None
    processes: int = 1

    async def client(self) -> LoadClient:
        endpoint = self.arm.endpoint
        target = await resolve(endpoint.url, endpoint.headers)
        labels = Labels(self.run.arm, str(self.run.number), monotonic())
        return LoadClient(target, self._asking(), labels, limits_of(self.study))

    def work(self, load: OpenLoad) -> Work:
        """The same for load processes."""
        endpoint = self.arm.endpoint
        return work_of(
            (endpoint.url, endpoint.headers),
            self._asking(),
            (self.run.arm, str(self.run.number)),
            limits_of(self.study),
            (Patience(drain_s=self.study.metrics.drain_s), load.schedule),
        )

    def _asking(self) -> Asking:
        sampling = self.study.workload.sampling
        return Asking(
            self.arm.endpoint.model,
            temperature=sampling.temperature,
            seed=sampling.seed,
            extra={} if self.salt is None else {"cache_salt": self.salt},
        )


def limits_of(study: Study) -> Limits:
    routing = study.routing
    return Limits(
        routing.connect_timeout_s,
        routing.first_timeout_s,
        routing.gap_timeout_s,
        routing.total_timeout_s,
    )


async def metrics_of(arm: Arm) -> dict[str, float]:
    """Empty where it does not answer: that shows in ``alive``, and in its requests."""
    try:
        return await arm.metrics()
    except UnavailableError:
        return {}


async def take(
    sending: Sending, load: Load, described: Described, taken: Taken, on_live: OnLive
) -> None:
    """Fills ``taken`` as the run goes, so that whoever interrupts it has what there was.

    An arm that cannot be asked afterwards is noted, not raised: the run has its records.
    """
    arm = sending.arm
    taken.before = environment(described.config, described.start)
    taken.metrics_before = await metrics_of(arm)
    lost = await _sent(sending, load, taken.records, on_live)
    taken.metrics_after = await metrics_of(arm)
    taken.not_alive = lost or await _not_alive(arm)
    if taken.not_alive is None:
        try:
            after = await arm.describe()
        except UnavailableError as error:
            taken.not_alive = _died(str(error))
            return
        taken.after = environment(after.config, after.start)


async def _sent(
    sending: Sending, load: Load, records: list[RequestRecord], on_live: OnLive
) -> str | None:
    """What of the client ended before its work, None for nothing."""
    if sending.processes > 1 and isinstance(load, OpenLoad):
        try:
            await send_spread(sending.work(load), sending.processes, load, records, on_live)
        except LoadProcessLost as error:
            return str(error)
        return None
    client = await sending.client()
    try:
        await send(client, sending.study, load, records, on_live)
    finally:
        client.close()
    return None


async def send(
    client: LoadClient, study: Study, load: Load, records: list[RequestRecord], on_live: OnLive
) -> None:
    """Sends all of ``load``; ``records`` grows as requests end."""
    watch = _Watch(load, records, on_live)
    patience = Patience(drain_s=study.metrics.drain_s)
    ticking = asyncio.create_task(watch.tick(client.now))
    try:
        if isinstance(load, OpenLoad):
            await run_open(client, load.schedule, patience, watch)
        else:
            loop = ClosedLoop(load.users, _NEVER_S)
            await run_closed(client, load.talks, loop, patience, watch)
    finally:
        ticking.cancel()


async def send_spread(
    work: Work, processes: int, load: OpenLoad, records: list[RequestRecord], on_live: OnLive
) -> None:
    """The same from several processes. Raises LoadProcessLost; ``records`` has what came before."""
    watch = _Watch(load, records, on_live)
    async with Crew(split(work, processes)) as crew:
        crew.begin()
        ticking = asyncio.create_task(watch.tick(crew.now))
        try:
            await crew.records(watch.keep)
        finally:
            ticking.cancel()


class _Watch:
    """Keeps each record as it comes and says how far the run is, a few times a second."""

    def __init__(self, load: Load, records: list[RequestRecord], on_live: OnLive) -> None:
        self._records = records
        self._on_live = on_live
        self._total = requests_in(load)
        self._warmup = load.warmup if isinstance(load, ClosedLoad) else frozenset()
        self._due = (
            sorted(due.at_s for due in load.schedule for _ in due.turns)
            if isinstance(load, OpenLoad)
            else None
        )

    def __call__(self, record: RequestRecord, progress: Progress) -> None:
        del progress
        self.keep(record)

    def keep(self, record: RequestRecord) -> None:
        # A closed loop is told by time what is warm-up; here it is told by the request.
        record.warmup = record.warmup or record.request_id in self._warmup
        self._records.append(record)

    async def tick(self, now: Callable[[], float]) -> None:
        while True:
            elapsed_s = now()
            intended = None if self._due is None else bisect_right(self._due, elapsed_s)
            ended = len(self._records)
            self._on_live(Live(ended, intended, self._total, elapsed_s, self._records))
            await asyncio.sleep(0.5)


async def _not_alive(arm: Arm) -> str | None:
    why = await arm.alive()
    return None if why is None else _died(why)


def _died(why: str) -> str:
    return f"the server did not live through it: {why}"
