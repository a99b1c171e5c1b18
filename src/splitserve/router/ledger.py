"""What this gateway believes is open at each worker. Empty when nothing runs.

The router writes it before it sends, so that whatever a worker says can be matched, and whatever a
worker was told can be taken back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from splitserve.ids import RequestId, WorkerId

T = TypeVar("T")

MAX_ORPHANS: Final = 4096
"""Requests of a lost worker remembered in case it comes back alive; the oldest go first."""


@dataclass(slots=True)
class _Page(Generic[T]):
    """One worker's. ``pending``: prompt tokens sent or promised whose work has not begun to show.
    ``recent``: those whose work began after the worker's last report. ``reported``: how many were
    open at that report."""

    open: dict[RequestId, T] = field(default_factory=dict)
    pending: dict[RequestId, int] = field(default_factory=dict)
    pending_tokens: int = 0
    recent_tokens: int = 0
    reported: int = 0
    orphans: dict[RequestId, None] = field(default_factory=dict)


class Ledger(Generic[T]):
    """By worker and by the request id the worker knows; ``T`` is what the router keeps for it."""

    def __init__(self) -> None:
        self._pages: dict[WorkerId, _Page[T]] = {}

    @property
    def empty(self) -> bool:
        return not any(page.open for page in self._pages.values())

    def open(self, worker: WorkerId, request_id: RequestId, entry: T, prompt_tokens: int) -> None:
        """The worker is about to be told of the request."""
        self._page(worker).open[request_id] = entry
        self.promise(worker, request_id, prompt_tokens)

    def promise(self, worker: WorkerId, request_id: RequestId, prompt_tokens: int) -> None:
        """The worker will be told of the request once another one has made room: until ``open``
        or ``close`` only its tokens count."""
        page = self._page(worker)
        page.pending_tokens += prompt_tokens - page.pending.get(request_id, 0)
        page.pending[request_id] = prompt_tokens

    def settle(self, worker: WorkerId, request_id: RequestId) -> int:
        """The worker has found room for the prompt: its next report will show it. Gives the
        prompt's tokens, 0 when that was known."""
        page = self._page(worker)
        tokens = page.pending.pop(request_id, 0)
        page.pending_tokens -= tokens
        page.recent_tokens += tokens
        return tokens

    def reported(self, worker: WorkerId) -> None:
        """The worker's own count is fresh."""
        page = self._page(worker)
        page.recent_tokens = 0
        page.reported = len(page.open)

    def close(self, worker: WorkerId, request_id: RequestId) -> None:
        """The worker holds nothing of the request any more, or was told to forget it."""
        page = self._page(worker)
        page.open.pop(request_id, None)
        page.pending_tokens -= page.pending.pop(request_id, 0)

    def at(self, worker: WorkerId) -> Mapping[RequestId, T]:
        """What is open there, live."""
        page = self._pages.get(worker)
        return MappingProxyType({}) if page is None else page.open

    def pending_tokens(self, worker: WorkerId) -> int:
        """Prompt tokens the worker was sent and has not begun to answer for."""
        return self._page(worker).pending_tokens

    def unsettled(self, worker: WorkerId) -> int:
        """Requests the worker was sent or promised and has not begun to answer for."""
        return len(self._page(worker).pending)

    def open_at_report(self, worker: WorkerId) -> int:
        """How many requests were open at the worker's last report, which counts them too."""
        return self._page(worker).reported

    def recent_tokens(self, worker: WorkerId) -> int:
        """Prompt tokens that found room since the worker's last report."""
        return self._page(worker).recent_tokens

    def lose(self, worker: WorkerId) -> list[T]:
        """The worker cannot be reached: all that was open there, now orphaned."""
        page = self._page(worker)
        entries = list(page.open.values())
        page.orphans.update(dict.fromkeys(page.open))
        while len(page.orphans) > MAX_ORPHANS:
            del page.orphans[next(iter(page.orphans))]
        page.open.clear()
        page.pending.clear()
        page.pending_tokens = page.recent_tokens = page.reported = 0
        return entries

    def take_orphans(self, worker: WorkerId) -> list[RequestId]:
        """Requests that an earlier connection left behind at the worker; forgotten here."""
        page = self._page(worker)
        orphans = list(page.orphans)
        page.orphans.clear()
        return orphans

    def _page(self, worker: WorkerId) -> _Page[T]:
        page = self._pages.get(worker)
        if page is None:
            page = self._pages[worker] = _Page()
        return page
