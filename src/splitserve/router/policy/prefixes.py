"""Which worker is likely to have the KV of which start of a prompt. Pure.

The router knows what it had computed where. Each worker's memory here is of the size of its KV pool
and forgets, as the pool does, what was used longest ago. That is a guess: other gateways use the
same pool, and some engines cache nothing. So what workers tell is compared with it, and where it
was wrong, less is expected.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from splitserve.ids import Incarnation, WorkerId
from splitserve.router.policy.base import Held, WorkerView
from splitserve.router.policy.chunks import CHUNK

MAX_CHUNKS: Final = 1 << 16
"""Of one worker, about 200 bytes each."""

_MEMORY: Final = 8
"""Over how many prompts it is remembered how far expectations came true."""


class Prefixes:
    """At most ``max_chunks`` of each worker; nothing of a life that has ended.

    ``starts`` are names of a text's starts (see Chunks) from the first on.
    """

    def __init__(self, max_chunks: int = MAX_CHUNKS) -> None:
        self._max_chunks = max_chunks
        self._shelves: dict[WorkerId, _Shelf] = {}
        self._fetched = _Share(0.0)
        """Of what decode holds and prefill does not."""

    def held(self, starts: Sequence[bytes], workers: Sequence[WorkerView]) -> Held:
        """What to expect at ``workers``, whose lives and pools are taken note of."""
        tokens: dict[WorkerId, int] = {}
        for view in workers:
            shelf = self._meet(view)
            found = shelf.longest(starts)
            if found:
                tokens[view.worker] = int(found * CHUNK * shelf.kept.value)
        return Held(tokens, self._fetched.value)

    def note(self, worker: WorkerId, starts: Sequence[bytes]) -> None:
        """The worker has just computed or received the KV of all of ``starts``. Ignored for a
        worker that was not met or was forgotten since."""
        shelf = self._shelves.get(worker)
        if shelf is not None:
            shelf.put(starts)

    def told(
        self,
        worker: WorkerId,
        starts: Sequence[bytes],
        cached_tokens: int,
        decode: WorkerId | None = None,
    ) -> None:
        """The worker had ``cached_tokens`` of such a prompt. ``decode``: it prefilled for that
        worker, and may have fetched from it what it lacked. To be called before ``note``."""
        shelf = self._shelves.get(worker)
        if shelf is None:
            return
        own = shelf.longest(starts) * CHUNK
        if own:
            shelf.kept.note(cached_tokens / own)
        source = None if decode is None else self._shelves.get(decode)
        there = 0 if source is None else source.longest(starts) * CHUNK
        if there > own:
            self._fetched.note((cached_tokens - own) / (there - own))

    def forget(self, worker: WorkerId) -> None:
        """It was lost: if it comes back it may be another life."""
        self._shelves.pop(worker, None)

    def _meet(self, view: WorkerView) -> "_Shelf":
        shelf = self._shelves.get(view.worker)
        if shelf is None or shelf.incarnation != view.incarnation:
            shelf = self._shelves[view.worker] = _Shelf(view.incarnation)
        shelf.limit = min(self._max_chunks, view.pool_tokens // CHUNK)
        return shelf


class _Share:
    """How much of what was expected came true lately, from 0 to 1."""

    def __init__(self, value: float) -> None:
        self.value = value

    def note(self, part: float) -> None:
        self.value += (min(1.0, max(0.0, part)) - self.value) / _MEMORY


class _Shelf:
    """One life of a worker: at most ``limit`` names, of which those used longest ago go first, and
    of one text the longest start first. So no name is here without those of all shorter starts.
    ``kept`` is how far it was right about what the worker caches.
    """

    def __init__(self, incarnation: Incarnation | None) -> None:
        self.incarnation = incarnation
        self.limit = 0
        self.kept = _Share(1.0)
        self._names: OrderedDict[bytes, None] = OrderedDict()

    def longest(self, starts: Sequence[bytes]) -> int:
        """How many of ``starts`` are here: a first part of them."""
        low, high = 0, len(starts)
        while low < high:
            middle = (low + high + 1) // 2
            if starts[middle - 1] in self._names:
                low = middle
            else:
                high = middle - 1
        return low

    def put(self, starts: Sequence[bytes]) -> None:
        names = self._names
        for name in reversed(starts):
            names[name] = None
            names.move_to_end(name)
        while len(names) > self.limit:
            names.popitem(last=False)
