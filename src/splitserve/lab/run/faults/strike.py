"""Brings a fault about while requests are under way, and waits until all is whole again."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from splitserve.errors import UnavailableError
from splitserve.lab.arms.base import Described
from splitserve.lab.arms.topology import TopologyArm
from splitserve.lab.load.client import LoadClient
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.plan.faults import HELD_BY_POOL, KV_POOL_FULL, USERS_OF_POOL, stop_s
from splitserve.lab.plan.study import Study
from splitserve.lab.run.environment import environment
from splitserve.lab.run.execute import OnLive, Sending, Taken, metrics_of, send
from splitserve.lab.run.faults.blow import Blow, aimed
from splitserve.lab.run.faults.seen import FaultSeen, counted_between, seen_of
from splitserve.lab.run.figures import measures_of
from splitserve.lab.run.timing import Load, is_under_way, requests_in

_POLL_S: Final = 0.05
_QUIET_SHARE: Final = 1 / 3
"""Of the load that is answered before the fault, to compare with."""

_WHOLE_WITHIN_S: Final = 60.0
_STARTS: Final = 2.0
"""How long after the load a deployment may take until nothing is amiss: at least so many seconds,
and so many times what one start of it is taken for."""


@dataclass(frozen=True, slots=True)
class _Struck:
    what: str
    began_s: float
    whole_s: float | None


async def under_fault(
    sending: Sending, load: Load, described: Described, taken: Taken, on_live: OnLive
) -> FaultSeen | None:
    """Sends ``load`` with the fault that the run's series names in its midst. Fills ``taken``.

    None where nothing was under way any more when it should have struck. Raises UnavailableError
    for a deployment in which there is nobody to strike.
    """
    arm, study, fault = sending.arm, sending.study, sending.run.series
    taken.before = environment(described.config, described.start)
    taken.metrics_before = await metrics_of(arm)
    blow = await _blow(sending)
    client = await sending.client()
    try:
        if blow is None:
            await send(client, study, load, taken.records, on_live)
            what = f"{USERS_OF_POOL} requests under way, and decode's KV pool holds {HELD_BY_POOL}"
            struck: _Struck | None = _Struck(what, 0.0, None)
        else:
            struck = await _struck(client, blow, study, load, taken.records, on_live)
    finally:
        client.close()
    taken.metrics_after = await metrics_of(arm)
    with suppress(UnavailableError):
        after = await arm.describe()
        taken.after = environment(after.config, after.start)
    if struck is None:
        return None
    return seen_of(
        fault,
        struck.what,
        struck.began_s,
        struck.whole_s,
        taken.records,
        measures_of(study, sending.run.cell).slo,
        counted_between(taken.metrics_before, taken.metrics_after),
    )


async def _blow(sending: Sending) -> Blow | None:
    """None for the fault that the arm itself was started with."""
    arm, fault = sending.arm, sending.run.series
    if fault == KV_POOL_FULL:
        return None
    # Nobody breaks what the lab did not start: such runs are left out.
    assert isinstance(arm, TopologyArm)
    return await aimed(arm, fault, stop_s(sending.study))


async def _struck(
    client: LoadClient,
    blow: Blow,
    study: Study,
    load: Load,
    records: list[RequestRecord],
    on_live: OnLive,
) -> _Struck | None:
    loading = asyncio.create_task(send(client, study, load, records, on_live))
    falling: asyncio.Task[float] | None = None

    async def fall() -> float:
        await blow.fall()
        return client.now()

    try:
        while not loading.done() and not _is_time(load, records, client.now()):  # noqa: ASYNC110 -- no event tells the middle of a load
            await asyncio.sleep(_POLL_S)
        if loading.done():
            await loading
            return None
        began_s = client.now()
        falling = asyncio.create_task(fall())
        await loading
        patience_s = max(_WHOLE_WITHIN_S, _STARTS * study.budget.start_s)
        await asyncio.wait((falling,), timeout=patience_s)
        return _Struck(blow.what, began_s, falling.result() if falling.done() else None)
    finally:
        for task in (loading, falling):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def _is_time(load: Load, records: list[RequestRecord], now_s: float) -> bool:
    """A part of the load is answered, and something is under way."""
    answered = len(records) >= _QUIET_SHARE * requests_in(load)
    return answered and is_under_way(load, len(records), now_s)
