"""HTTP to one vLLM instance: the file that knows aiohttp's errors."""

from collections.abc import Callable, Mapping
from typing import Final

import aiohttp

from splitserve.router.workers.vllm.answers import Event, read
from splitserve.router.workers.vllm.failure import LegFailed, refused
from splitserve.router.workers.vllm.sse import DONE, DataLines

CONNECT_TIMEOUT_S: Final = 5.0
SILENCE_S: Final = 600.0
"""How long vLLM may say nothing in the middle of an answer; it says nothing while it queues."""

KEEP_ALIVE_S: Final = 2.0
"""Shorter than vLLM's own (5 s): a connection that it is about to close is not used again."""

MAX_CONNECTIONS: Final = 4096
_MAX_ERROR: Final = 64 * 1024

_JSON: Final = {"Content-Type": "application/json"}


def new_session(api_key: str) -> aiohttp.ClientSession:
    """For one instance; needs a running loop."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=KEEP_ALIVE_S),
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_S
        ),
        headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
    )


class Calls:
    """Requests to the instance at ``url``. All raise LegFailed and nothing else."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def stream(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        opened: Callable[[], None],
        take: Callable[[Event], None],
    ) -> None:
        """Calls ``opened`` once vLLM has begun to answer, then ``take`` for every event, and
        returns at the stream's end. Cancelling it closes the connection: vLLM aborts the request
        then. So does an exception in ``take``, which passes through."""
        try:
            async with self._post(path, body, headers) as answer:
                await _check(answer)
                opened()
                lines = DataLines()
                async for piece in answer.content.iter_any():
                    for data in lines.feed(piece):
                        if data != DONE:
                            take(read(data))
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from error

    async def whole(self, path: str, body: bytes, headers: Mapping[str, str]) -> Event:
        """The answer to a request that does not stream."""
        try:
            async with self._post(path, body, headers) as answer:
                await _check(answer)
                return read(await answer.read())
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from error

    async def get(self, path: str, timeout_s: float) -> bytes:
        """A body that was answered with 200 within ``timeout_s``."""
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.get(self._url + path, timeout=timeout) as answer:
                await _check(answer)
                return await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from error

    async def post_status(self, path: str, body: bytes, timeout_s: float) -> int:
        """The HTTP status alone."""
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.post(
                self._url + path, data=body, headers=_JSON, timeout=timeout
            ) as answer:
                return answer.status
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from error

    def _post(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> "aiohttp.client._RequestContextManager":
        return self._session.post(self._url + path, data=body, headers={**_JSON, **headers})


async def _check(answer: aiohttp.ClientResponse) -> None:
    if answer.status != 200:
        raise refused(answer.status, await answer.content.read(_MAX_ERROR))


def _unreachable(error: Exception) -> LegFailed:
    said = str(error) or type(error).__name__
    refused = isinstance(error, aiohttp.ClientConnectorError)
    return LegFailed("engine", f"vLLM gave no answer: {said}", unreachable=True, refused=refused)
