"""Requests that no worker has room for now, in the order in which they will go."""

from splitserve.ids import RequestId
from splitserve.router.admission.level import Level
from splitserve.router.admission.views import Candidate


class Line:
    """By priority, then in fair turns (see Level). Whoever was refused by a worker gets its place
    back."""

    def __init__(self) -> None:
        self._levels: dict[int, Level] = {}
        self._waiting: dict[RequestId, Candidate] = {}
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, candidate: Candidate) -> bool:
        return candidate.request_id in self._waiting

    @property
    def tokens(self) -> int:
        """Prompt tokens of all that wait."""
        return self._tokens

    def join(self, candidate: Candidate) -> None:
        self._note(candidate).join(candidate)

    def rejoin(self, candidate: Candidate) -> None:
        """A worker refused it after its turn had come."""
        self._note(candidate).rejoin(candidate)

    def first(self) -> Candidate | None:
        if not self._levels:
            return None
        return self._levels[min(self._levels)].first()

    def serve(self, candidate: Candidate) -> None:
        """``candidate``, which is ``first``, is given to a worker."""
        self._levels[candidate.priority].serve(candidate)
        self._forget(candidate)

    def leave(self, candidate: Candidate) -> None:
        """Not served. Unknown ones are ignored."""
        if candidate in self:
            self._levels[candidate.priority].leave(candidate)
            self._forget(candidate)

    def order(self) -> list[Candidate]:
        """Everybody as they would go if nobody came or went."""
        found: list[Candidate] = []
        for _, level in sorted(self._levels.items()):
            found += [place.candidate for place in sorted(level.places())]
        return found

    def ahead(self, candidate: Candidate) -> tuple[int, int]:
        """How many go before it, and their prompt tokens. It has to wait here."""
        requests = tokens = 0
        for priority, level in self._levels.items():
            if priority <= candidate.priority:
                same = priority == candidate.priority
                count, prompt_tokens = level.ahead(candidate if same else None)
                requests += count
                tokens += prompt_tokens
        return requests, tokens

    def last(self) -> Candidate | None:
        """Whoever would go last of those that had no turn yet."""
        for _, level in sorted(self._levels.items(), reverse=True):
            places = [p for p in level.places() if not level.is_returned(p.candidate)]
            if places:
                return max(places).candidate
        return None

    def _note(self, candidate: Candidate) -> Level:
        self._waiting[candidate.request_id] = candidate
        self._tokens += candidate.prompt_tokens
        level = self._levels.get(candidate.priority)
        if level is None:
            level = self._levels[candidate.priority] = Level()
        return level

    def _forget(self, candidate: Candidate) -> None:
        del self._waiting[candidate.request_id]
        self._tokens -= candidate.prompt_tokens
        if self._levels[candidate.priority].empty:
            del self._levels[candidate.priority]
