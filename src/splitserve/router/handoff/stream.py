"""One request's answer in order, between the sockets and whoever reads it.

Two workers write, one reader reads, all on one event loop. Writing is the hot path: no task and no
lock, one future per wait.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from splitserve.protocol.generate import TokenChunk


class TokenStream:
    """Puts chunks in order by output index, drops what came before, tells the reader.

    ``emitted`` are all token ids in order so far, read or not: what a replay starts from.
    """

    __slots__ = ("_error", "_held", "_ready", "_waiter", "complete", "emitted")

    def __init__(self) -> None:
        self.emitted: list[int] = []
        self.complete = False
        self._ready: deque[TokenChunk] = deque()
        self._held: dict[int, TokenChunk] = {}
        self._waiter: asyncio.Future[TokenChunk] | None = None
        self._error: Exception | None = None

    def offer(self, chunk: TokenChunk) -> None:
        """Takes a chunk in whatever order; what is doubled is dropped, what is early is held."""
        if chunk.index == len(self.emitted):
            self._accept(chunk)
            if self._held:
                self._release()
        elif chunk.index > len(self.emitted):
            self._held[chunk.index] = chunk
        else:
            self._accept_rest(chunk)

    def restart(self) -> None:
        """Another attempt goes on after ``emitted``: forget what the last one sent early."""
        self._held.clear()

    def fail(self, error: Exception) -> None:
        """The reader gets what is in order, then ``error``."""
        self._error = error
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    def take(self) -> TokenChunk | None:
        """All that is in order, as one chunk; None when there is nothing now.

        Raises the error given to ``fail`` once nothing is left.
        """
        ready = self._ready
        if len(ready) == 1:
            return ready.popleft()
        if ready:
            merged = _merge(ready)
            ready.clear()
            return merged
        if self._error is not None:
            raise self._error
        return None

    def news(self) -> asyncio.Future[TokenChunk]:
        """The next chunk, when ``take`` has just given None. For one reader.

        A future and no coroutine, and handed over without the queue: most tokens come this way.
        """
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _accept(self, chunk: TokenChunk) -> None:
        if self.complete:
            return
        self.emitted += chunk.token_ids
        self.complete = chunk.finish_reason is not None
        waiter = self._waiter
        if waiter is None:
            self._ready.append(chunk)
        else:
            self._waiter = None
            if not waiter.done():  # its reader may have been cancelled
                waiter.set_result(chunk)

    def _release(self) -> None:
        while self._held and (first := min(self._held)) <= len(self.emitted):
            chunk = self._held.pop(first)
            if first == len(self.emitted):
                self._accept(chunk)
            else:
                self._accept_rest(chunk)

    def _accept_rest(self, chunk: TokenChunk) -> None:
        """Of a chunk that begins before the end: the part that is new, if any."""
        known = len(self.emitted) - chunk.index
        if known >= len(chunk.token_ids):
            return
        logprobs = None if chunk.logprobs is None else chunk.logprobs[known:]
        self._accept(
            TokenChunk(
                chunk.request_id,
                chunk.index + known,
                chunk.token_ids[known:],
                chunk.finish_reason,
                chunk.stop_reason,
                logprobs,
                None,
            )
        )


def _merge(chunks: Sequence[TokenChunk]) -> TokenChunk:
    """Adjacent chunks of one request as one: the reader was slower than the workers."""
    first, last = chunks[0], chunks[-1]
    tokens: list[int] = []
    for chunk in chunks:
        tokens += chunk.token_ids
    logprobs = None
    if first.logprobs is not None:
        logprobs = tuple(entry for chunk in chunks for entry in chunk.logprobs or ())
    return TokenChunk(
        first.request_id,
        first.index,
        tuple(tokens),
        last.finish_reason,
        last.stop_reason,
        logprobs,
        next((c.cached_tokens for c in chunks if c.cached_tokens is not None), None),
    )
