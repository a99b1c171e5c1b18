"""Ends work for a client that is no longer there."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from starlette.types import Receive

from splitserve.errors import CallerError
from splitserve.frontend.body import ClientGone

_ABORTED: Final = 499
"""nginx's status for a request that its client gave up."""


async def until_disconnect(
    receive: Receive, work: Coroutine[Any, Any, None], aborted: asyncio.Event
) -> None:
    """Runs ``work``; cancels it and waits for its end when the client leaves (raises ClientGone) or
    ``aborted`` is set (raises CallerError).

    The request's body must have been read: ``receive`` then has nothing to tell but that.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_disconnected(receive))
    waiting = asyncio.create_task(aborted.wait())
    tasks = (working, watching, waiting)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        finished = working.done()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not finished:
        if aborted.is_set():
            raise CallerError("the request was aborted", status=_ABORTED, code="aborted")
        raise ClientGone
    working.result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
