"""KV that is brought into the prefix cache from elsewhere, instead of being computed here.

The blocks that it is brought into are held, and so is the cached prefix that they follow: what is
brought would be worthless without it. Nothing of it has a name before it is all there.
"""

from splitserve.engine.api import Fetch
from splitserve.engine.kv.blocks import BlockPool
from splitserve.engine.scheduler import Scheduler
from splitserve.engine.sequence import Seq


class Fetching:
    """See ``engine.api.Engine`` for what each method promises."""

    def __init__(self, scheduler: Scheduler, pool: BlockPool, block_size: int) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._block_size = block_size

    def fetch(self, seq: Seq, tokens: int) -> Fetch | None:
        """``seq`` is in no queue; of its first ``tokens`` full blocks are fetched."""
        scheduler = self._scheduler
        # The last token is always computed: without it there are no logits to sample from.
        wanted = min(tokens, seq.prompt_len - 1) // self._block_size
        if not scheduler.caches or wanted < 1:
            return None
        cached = scheduler.cached_prefix(seq, wanted)
        count = wanted - len(cached)
        if not count or not scheduler.has_room_to_fetch(count, cached):
            return None
        blocks = self._pool.allocate(count, cached)
        if blocks is None:
            return None
        digests = seq.digests[len(cached) : wanted]
        return Fetch(tuple(cached), tuple(blocks[len(cached) :]), tuple(digests))

    def adopt(self, fetch: Fetch, count: int) -> None:
        for block, digest in zip(fetch.blocks[:count], fetch.digests[:count], strict=True):
            self._pool.register(block, digest)
        self.drop(fetch)

    def drop(self, fetch: Fetch) -> None:
        self._pool.free([*fetch.cached, *fetch.blocks])
