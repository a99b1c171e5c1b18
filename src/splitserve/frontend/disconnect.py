"""Ends work for a client that is no longer there."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive

from splitserve.frontend.body import ClientGone


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Runs ``work``; cancels it, waits for its end and raises ClientGone when the client leaves.

    The request's body must have been read: ``receive`` then has nothing to tell but that.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        finished = working.done()
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
    if not finished:
        raise ClientGone
    working.result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
