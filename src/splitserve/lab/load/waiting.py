"""Waiting for a moment more exactly than an event loop's timers do."""

import asyncio
from typing import Final

from splitserve.clock import Clock

TIMER_ERROR_S: Final = 0.0015
"""asyncio rounds its timers up to whole milliseconds; the rest is waited for turn by turn."""


async def wait_until(due_s: float, clock: Clock) -> None:
    """Returns at ``due_s`` of ``clock``, at once if it has passed. Sockets are served meanwhile."""
    await asyncio.sleep(max(0.0, due_s - TIMER_ERROR_S - clock()))
    while clock() < due_s:  # noqa: ASYNC110 -- there is no event to wait for but the clock
        await asyncio.sleep(0)
