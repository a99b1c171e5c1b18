"""Back from the split to the single arm while requests are under way, and what was seen of it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from splitserve.clock import Clock
from splitserve.lab.arms.base import Arm, Described
from splitserve.lab.arms.topology import TopologyArm
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.outcomes import standing
from splitserve.lab.run.environment import environment
from splitserve.lab.run.execute import OnLive, Sending, Taken, send
from splitserve.lab.run.fleet import Fleet
from splitserve.lab.run.gpu_memory import gpu_memory_mib
from splitserve.lab.run.timing import Load, is_under_way, requests_in

ROLLBACK: Final = "rollback"
BEFORE, UNDER_LOAD, AFTER = "before", "back under load", "after"
"""Its series, in order."""

ROLLBACK_FILE: Final = "rollback.json"

_POLL_S: Final = 0.02
_LINGER_S: Final = 1.0
"""How long after the return requests that were under way may still be told as ended."""


@dataclass(frozen=True, slots=True)
class Returned:
    """What was seen. ``served`` of the ``in_flight`` requests that were under way when the return
    was ordered got their answer. ``gpu_memory_above_mib`` is over what was used before the split
    was started, None where GPUs are used and nothing tells."""

    return_s: float
    in_flight: int
    served: int
    processes_left: int
    ports_left_open: int
    gpu_memory_above_mib: float | None


@dataclass(frozen=True, slots=True)
class GoingBack:
    """``sending`` is to the split, which runs; ``back`` is the label of the arm to go back to."""

    sending: Sending
    load: Load
    described: Described
    fleet: Fleet
    back: str
    clock: Clock


async def go_back(
    going: GoingBack, taken: Taken, on_live: OnLive, answers: Callable[[Arm], Awaitable[None]]
) -> Returned:
    """Loads the split, orders the return when half of the load is answered, and looks.

    ``answers`` returns when an arm has answered a request. Raises StartFailed and UnavailableError
    where the way back is blocked.
    """
    arm, clock = going.sending.arm, going.clock
    taken.before = environment(going.described.config, going.described.start)
    client = await going.sending.client()
    loading = asyncio.create_task(
        send(client, going.sending.study, going.load, taken.records, on_live)
    )
    try:
        half = requests_in(going.load) / 2
        while not loading.done() and (  # noqa: ASYNC110 -- no event tells the middle of a load
            len(taken.records) < half
            or not is_under_way(going.load, len(taken.records), client.now())
        ):
            await asyncio.sleep(_POLL_S)
        ordered_s, began_s = client.now(), clock()
        await going.fleet.take_down()
        left = arm.left_behind if isinstance(arm, TopologyArm) else 0
        is_open = await _is_open(arm.endpoint.url)
        memory = await _memory_above(going.fleet)
        single, described, _ = await going.fleet.bring_up(going.back)
        await answers(single)
        return_s = clock() - began_s
        await asyncio.sleep(_LINGER_S)
    finally:
        loading.cancel()
        with suppress(asyncio.CancelledError):
            await loading
        client.close()
    taken.after = environment(described.config, described.start)
    under_way = in_flight(taken.records, ordered_s)
    served = sum(standing(record).served for record in under_way)
    return Returned(return_s, len(under_way), served, left, int(is_open), memory)


def in_flight(records: Sequence[RequestRecord], ordered_s: float) -> list[RequestRecord]:
    """Those that were due, were sent, and had not ended."""
    return [
        record
        for record in records
        if record.sent_s is not None and record.intended_s <= ordered_s < record.ended_s
    ]


async def _memory_above(fleet: Fleet) -> float | None:
    if fleet.gpu_memory_before_mib is None:
        return None if fleet.uses_gpus else 0.0
    now = await gpu_memory_mib()
    return None if now is None else max(0.0, now - fleet.gpu_memory_before_mib)


async def _is_open(url: str) -> bool:
    parts = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return False
    writer.close()
    return True
