"""The role's side of the KV tier: what is named is offered to it, what is lacking is asked of it.

A request whose prompt's start is not in the prefix cache waits here, while steps go on, until the
tier has brought what it has of it; then it is added like any other and finds that in the cache.
Driven by the engine's thread; files are the business of the tier's own.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from splitserve.clock import Clock
from splitserve.engine.api import Engine, Fetch
from splitserve.ids import RequestId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.telemetry import TierCounts
from splitserve.tier.store import LevelCounts
from splitserve.tier.worker_thread import Loaded, LoadId, Stored

log = logging.getLogger(__name__)

WAIT_S: Final = 2.0
"""After so long a load ends with what it has brought; after twice as long its request is computed
without it, whatever the file does that is being read. A tier that does nothing for so long is not
asked: what waits for it would only wait, and hold blocks."""

STORING_AT_REST: Final = 64
STORING_AT_WORK: Final = 4
"""Blocks given to the tier and not told as stored yet. They cannot be evicted meanwhile, and
copying takes memory bandwidth from what the engine computes."""

PINNED_SHARE: Final = 16
"""Of so many blocks of the pool at most one is pinned like that."""


class BlockTier(Protocol):
    """What is needed of ``tier.worker_thread.TierThread``, where each promise is written."""

    def load(self, digests: Sequence[bytes], blocks: Sequence[int]) -> LoadId: ...

    def cancel(self, load: LoadId) -> None: ...

    def store(self, digest: bytes, block: int) -> None: ...

    def poll(self) -> list[Loaded | Stored]: ...

    def counts(self) -> Mapping[str, LevelCounts]: ...


@dataclass(slots=True)
class _Wait:
    """One load. ``start`` is None once the request goes its way or nobody wants it any more: only
    the blocks of ``fetch`` wait then."""

    request_id: RequestId
    fetch: Fetch
    start: Callable[[], None] | None
    since: float
    cancelled: bool = False


class Tiering:
    def __init__(self, engine: Engine, tier: BlockTier, clock: Clock) -> None:
        self._engine = engine
        self._tier = tier
        self._clock = clock
        num_blocks = engine.describe().layout.num_blocks
        self._most_pinned = max(1, num_blocks // PINNED_SHARE)
        self._storing = 0
        self._waits: dict[LoadId, _Wait] = {}
        self._by_request: dict[RequestId, LoadId] = {}
        # When the tier last did something, or had nothing to do. A load that was cancelled ends
        # without that.
        self._heard = clock()
        self._hangs = False

    @property
    def pending(self) -> bool:
        """Whether ``tick`` will have something to do soon, though no step runs and nobody says
        anything."""
        return bool(self._waits) or self._storing > 0

    def counts(self) -> tuple[TierCounts, ...]:
        """What each level did for this worker, the fastest first."""
        return tuple(
            TierCounts(
                level, count.hits, count.misses, count.nbytes, count.evictions, count.corrupt
            )
            for level, count in self._tier.counts().items()
        )

    def wait_for(
        self, request: GenerateRequest, start: Callable[[], None], *, push: bool = False
    ) -> bool:
        """Whether the tier is asked for what the cache lacks of the prompt's start: ``start`` is
        then called once, from ``tick``, unless ``abort`` comes before. It adds the request to the
        engine, at once.

        False when nothing is lacking, there is no room to put it, or the tier hangs: the caller
        adds it now. Raises CallerError where the engine's ``add`` would. The request must not be
        waiting already.
        """
        if self._hangs:
            return False
        fetch = self._engine.fetch(request, push=push)
        if fetch is None:
            return False
        load = self._tier.load(fetch.digests, fetch.blocks)
        self._waits[load] = _Wait(request.request_id, fetch, start, self._clock())
        self._by_request[request.request_id] = load
        return True

    def abort(self, request_id: RequestId) -> None:
        """A request that waits here is not wanted any more; others are none of our business."""
        load = self._by_request.pop(request_id, None)
        if load is not None:
            self._waits[load].start = None
            self._cancel(load, self._waits[load])

    def tick(self) -> None:
        """Takes in what the tier did and gives it what is new. Called again and again.

        Raises what broke the tier's thread.
        """
        stored: list[int] = []
        for ended in self._tier.poll():
            match ended:
                case Stored():
                    self._heard = self._clock()
                    stored.append(ended.block)
                case Loaded():
                    self._brought(self._waits.pop(ended.load), ended.count)
        if stored:
            self._storing -= len(stored)
            self._engine.unpin(stored)
        self._look_at_the_clock()
        self._offer()

    def _brought(self, wait: _Wait, count: int) -> None:
        """The fetch ends, also of a request that went its way without; what is there is right."""
        if count or not wait.cancelled:
            self._heard = self._clock()
        if count:
            self._engine.adopt(wait.fetch, count)
        else:
            self._engine.drop(wait.fetch)
        self._start(wait)

    def _start(self, wait: _Wait) -> None:
        start, wait.start = wait.start, None
        if start is not None:
            del self._by_request[wait.request_id]
            start()

    def _cancel(self, load: LoadId, wait: _Wait) -> None:
        if not wait.cancelled:
            wait.cancelled = True
            self._tier.cancel(load)

    def _look_at_the_clock(self) -> None:
        now = self._clock()
        for load, wait in list(self._waits.items()):
            if now - wait.since >= WAIT_S:
                self._cancel(load, wait)
            if now - wait.since >= 2 * WAIT_S:
                self._start(wait)
        if not self.pending:
            self._heard = now
        hangs = now - self._heard >= 2 * WAIT_S
        if hangs and not self._hangs:
            log.warning("the KV tier does not answer; going on without")
        self._hangs = hangs

    def _offer(self) -> None:
        busy = bool(self._waits) or self._engine.has_work()
        limit = min(STORING_AT_WORK if busy else STORING_AT_REST, self._most_pinned)
        if self._storing >= limit:
            return
        for digest, block in self._engine.offer(limit - self._storing):
            self._storing += 1
            self._tier.store(digest, block)
