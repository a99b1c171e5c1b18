"""Turns between the owners of one priority.

Deficit round robin in which a visit serves one request: an owner that was served sits out until
the rounds have repaid its prompt tokens, each round as many as the cheapest request at hand costs.
So owners get equal prompt tokens however they cut them, an owner alone gets everything, and one
that comes new waits for at most one request of each other. An owner's requests keep their order.
"""

from bisect import insort
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from splitserve.router.admission.views import Candidate

_SERIAL: Final = attrgetter("serial")


class Place(NamedTuple):
    """Where a request stands: sorts in the order of service. ``paid`` are the tokens that have to
    be served before it is its turn."""

    paid: float
    turn: int
    serial: int
    candidate: Candidate


class Level:
    """``returned`` ones had their turn and were refused by a worker: they get turn and place back,
    and their owner gets its tokens back."""

    def __init__(self) -> None:
        self._returned: set[int] = set()
        self._queues: dict[str, list[Candidate]] = {}
        self._due: dict[str, float] = {}
        """Virtual time at which an owner may be served again; kept while it waits or has to."""
        self._turn: dict[str, int] = {}
        self._turns = 0
        self._now = 0.0

    @property
    def empty(self) -> bool:
        return not self._queues

    def join(self, candidate: Candidate) -> None:
        insort(self._queue(candidate.owner), candidate, key=_SERIAL)

    def rejoin(self, candidate: Candidate) -> None:
        self.join(candidate)
        self._returned.add(candidate.serial)
        self._due[candidate.owner] -= candidate.prompt_tokens

    def is_returned(self, candidate: Candidate) -> bool:
        return candidate.serial in self._returned

    def first(self) -> Candidate:
        """Raises ValueError when nobody waits."""
        return self._queues[self._next_owner()][0]

    def serve(self, candidate: Candidate) -> None:
        """``candidate``, which is ``first``, gets what it waited for."""
        owner, waiting = candidate.owner, len(self._queues)
        round_tokens = min(queue[0].prompt_tokens for queue in self._queues.values())
        start = self._due[owner]
        self._due[owner] = start + candidate.prompt_tokens
        self._now = max(self._now, start) + round_tokens / waiting
        self._turn[owner] = self._next_turn()
        self.leave(candidate)
        for other in [o for o, due in self._due.items() if due <= self._now]:
            if other not in self._queues:
                del self._due[other]

    def leave(self, candidate: Candidate) -> None:
        """It goes; unless it was served, nothing is charged."""
        queue = self._queues[candidate.owner]
        queue.remove(candidate)
        self._returned.discard(candidate.serial)
        if not queue:
            del self._queues[candidate.owner]
            del self._turn[candidate.owner]

    def places(self) -> Iterator[Place]:
        """Everybody, in no order: sort them to have one."""
        for owner, queue in self._queues.items():
            paid, turn = self._start(owner), self._turn[owner]
            for candidate in queue:
                yield Place(paid, turn, candidate.serial, candidate)
                paid += candidate.prompt_tokens

    def ahead(self, candidate: Candidate | None = None) -> tuple[int, int]:
        """How many go before ``candidate``, and their prompt tokens; of all when it is None."""
        limit = None if candidate is None else self._place(candidate)
        requests = tokens = 0
        for owner, queue in self._queues.items():
            paid, turn = self._start(owner), self._turn[owner]
            for other in queue:
                if limit is not None and (paid, turn, other.serial) >= limit:
                    break
                requests += 1
                tokens += other.prompt_tokens
                paid += other.prompt_tokens
        return requests, tokens

    def _place(self, candidate: Candidate) -> tuple[float, int, int]:
        paid = self._start(candidate.owner)
        for other in self._queues[candidate.owner]:
            if other.serial == candidate.serial:
                break
            paid += other.prompt_tokens
        return paid, self._turn[candidate.owner], candidate.serial

    def _next_owner(self) -> str:
        return min(self._queues, key=lambda owner: (self._start(owner), self._turn[owner]))

    def _start(self, owner: str) -> float:
        return max(self._now, self._due.get(owner, 0.0))

    def _queue(self, owner: str) -> list[Candidate]:
        queue = self._queues.get(owner)
        if queue is None:
            queue = self._queues[owner] = []
            self._turn[owner] = self._next_turn()
            self._due[owner] = self._start(owner)
        return queue

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns
