"""Waiting for an endpoint that is still starting."""

import asyncio
from dataclasses import replace
from typing import Final

from splitserve.errors import UnavailableError
from splitserve.lab.load.client import LoadClient
from splitserve.lab.load.record import Outcome, RequestRecord
from splitserve.lab.load.request import LoadRequest

PAUSE_S: Final = 0.5

_SERVED: Final = (Outcome.OK, Outcome.NO_USAGE, Outcome.SHORT, Outcome.COUNT_MISMATCH)


async def wait_until_serving(
    client: LoadClient, probe: LoadRequest, timeout_s: float, pause_s: float = PAUSE_S
) -> RequestRecord:
    """Asks ``probe`` until it is answered; gives the record of that answer.

    A health check is not enough: it may be green while a worker behind it still loads. Refusals,
    404 and 503 are what a starting endpoint says; so are all other failures until ``timeout_s``.
    Raises UnavailableError then, with the last of them.
    """
    deadline_s, tries = client.now() + timeout_s, 0
    while True:
        tries += 1
        asked = replace(probe, request_id=f"{probe.request_id}-{tries}")
        record = await client.send(asked, client.now(), cut_s=deadline_s, warmup=True)
        if record.outcome in _SERVED:
            return record
        if client.now() + pause_s >= deadline_s:
            raise UnavailableError(
                f"no answer within {timeout_s:g} s ({tries} tries); the last: "
                f"{record.outcome}: {record.error}"
            )
        await asyncio.sleep(pause_s)
